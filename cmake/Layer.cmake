# How every target of the tree is compiled, and what a layer is.

# Neither errno nor floating-point traps are read anywhere; without them loops become vector code.
add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-fno-math-errno;-fno-trapping-math>")
# For some processors GCC multiplies and adds in two steps where a loop would be a chain of fused
# operations, which round once: the bits of a sum would depend on how its loop was compiled.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:--param=avoid-fma-max-bits=0>")
endif()
if(XTRAIN_NATIVE)
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-march=native>")
endif()
if(XTRAIN_SANITIZE)
  add_compile_options(-fsanitize=${XTRAIN_SANITIZE} -fno-omit-frame-pointer
                      -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${XTRAIN_SANITIZE})
endif()

# xtrain_layer(NAME SOURCES a.cpp ... LINK xtrain_below ...): the static library xtrain_NAME, also
# known as xtrain::NAME. Includes are relative to the root.
function(xtrain_layer name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LINK;LINK_PRIVATE")
  add_library(xtrain_${name} STATIC ${arg_SOURCES})
  add_library(xtrain::${name} ALIAS xtrain_${name})
  target_include_directories(xtrain_${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>)
  target_compile_features(xtrain_${name} PUBLIC cxx_std_20)
  target_link_libraries(xtrain_${name} PUBLIC ${arg_LINK} PRIVATE ${arg_LINK_PRIVATE})
endfunction()
