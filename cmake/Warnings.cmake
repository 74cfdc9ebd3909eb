# Warnings of every target of the tree, C++ and CUDA host code. Those who build with
# CMAKE_COMPILE_WARNING_AS_ERROR=ON, as CI does, stop at the first.
set(XTRAIN_WARNINGS
  -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Wcast-align -Wvla)

# Where GCC 12 inlines copies of std::string it reports overlaps and overruns that are not there
# (GCC bugs 105329 and 105651). The sanitizers find the real ones.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  list(APPEND XTRAIN_WARNINGS -Wno-restrict -Wno-array-bounds -Wno-stringop-overflow)
endif()

add_compile_options(
  "$<$<COMPILE_LANGUAGE:CXX>:${XTRAIN_WARNINGS}>"
  "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra>")
