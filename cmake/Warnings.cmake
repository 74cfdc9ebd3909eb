# Warnings of every target of the tree, C++ and CUDA host code. Those who build with
# CMAKE_COMPILE_WARNING_AS_ERROR=ON, as CI does, stop at the first.
set(XTRAIN_WARNINGS
  -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Wcast-align -Wvla)

add_compile_options(
  "$<$<COMPILE_LANGUAGE:CXX>:${XTRAIN_WARNINGS}>"
  "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra>")
