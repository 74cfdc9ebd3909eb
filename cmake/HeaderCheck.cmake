# Target header_check: every header compiles alone, and twice in one file. Not part of `all`.
# Target cuda_header_check: the same for the headers of kernels, in CUDA builds.
#
# One source a header is written below the build folder.
function(xtrain_add_header_check)
  set(headers)
  foreach(layer IN ITEMS core autodiff ops model train distributed tools tests)
    file(GLOB_RECURSE found CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}
         ${PROJECT_SOURCE_DIR}/${layer}/*.h)
    list(APPEND headers ${found})
  endforeach()
  set(kernel_headers ${headers})
  list(FILTER kernel_headers INCLUDE REGEX "^core/cuda/|_cuda\\.h$")
  list(REMOVE_ITEM headers ${kernel_headers})

  # Only the syntax is checked; the objects are never made.
  xtrain_add_header_check_target(header_check cpp HEADERS ${headers} LINK ${ARGN})
  target_compile_options(header_check PRIVATE -fsyntax-only)
  if(XTRAIN_CUDA_ENABLED)
    xtrain_add_header_check_target(cuda_header_check cu HEADERS ${kernel_headers} LINK ${ARGN})
  endif()
endfunction()

function(xtrain_add_header_check_target target extension)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "" "HEADERS;LINK")
  set(sources)
  foreach(header IN LISTS arg_HEADERS)
    set(source ${PROJECT_BINARY_DIR}/${target}/${header}.${extension})
    file(CONFIGURE OUTPUT ${source}
         CONTENT "#include \"${header}\"\n#include \"${header}\"\n")
    list(APPEND sources ${source})
  endforeach()
  add_library(${target} OBJECT EXCLUDE_FROM_ALL ${sources})
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/tests)
  target_compile_features(${target} PRIVATE cxx_std_20)
  # The tests' headers name the folders that their programs are told.
  target_compile_definitions(${target} PRIVATE XT_SOURCE_DIR="" XT_PROGRAM_DIR="")
  target_link_libraries(${target} PRIVATE ${arg_LINK})
endfunction()
