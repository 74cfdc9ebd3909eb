# Target header_check: every header compiles alone, and twice in one file. Not part of `all`.
#
# One source a header is written below the build folder; its object is never made, only its syntax
# is checked. Headers below core/cuda need the CUDA toolkit and are left out without it.
function(xtrain_add_header_check)
  set(headers)
  foreach(layer IN ITEMS core autodiff ops model train distributed tools tests)
    file(GLOB_RECURSE found CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}
         ${PROJECT_SOURCE_DIR}/${layer}/*.h)
    list(APPEND headers ${found})
  endforeach()
  if(NOT XTRAIN_CUDA_ENABLED)
    list(FILTER headers EXCLUDE REGEX "^core/cuda/")
  endif()

  set(sources)
  foreach(header IN LISTS headers)
    set(source ${PROJECT_BINARY_DIR}/header_check/${header}.cpp)
    file(CONFIGURE OUTPUT ${source}
         CONTENT "#include \"${header}\"\n#include \"${header}\"\n")
    list(APPEND sources ${source})
  endforeach()

  add_library(header_check OBJECT EXCLUDE_FROM_ALL ${sources})
  target_include_directories(header_check PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/tests)
  target_compile_options(header_check PRIVATE -fsyntax-only)
  target_compile_features(header_check PRIVATE cxx_std_20)
  target_link_libraries(header_check PRIVATE ${ARGN})
endfunction()
