# Warnings of every target of the tree, C++ and CUDA host code. Those who build with
# CMAKE_COMPILE_WARNING_AS_ERROR=ON, as CI does, stop at the first.
set(XTRAIN_WARNINGS
  -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Wcast-align -Wvla)

# GCC 12 sees overlapping copies in "text" + std::string that are not there (GCC bug 105651).
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  list(APPEND XTRAIN_WARNINGS -Wno-restrict)
endif()

add_compile_options(
  "$<$<COMPILE_LANGUAGE:CXX>:${XTRAIN_WARNINGS}>"
  "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra>")
