# Decides whether CUDA code is built: XTRAIN_CUDA_ENABLED.
include(CheckLanguage)

set(XTRAIN_CUDA_ENABLED OFF)
if(XTRAIN_CUDA STREQUAL "AUTO")
  file(GLOB xtrain_gpus /dev/nvidia[0-9]*)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER AND xtrain_gpus)
    set(XTRAIN_CUDA_ENABLED ON)
  endif()
elseif(XTRAIN_CUDA)
  set(XTRAIN_CUDA_ENABLED ON)
endif()

if(XTRAIN_CUDA_ENABLED)
  if(NOT CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 90a)
  endif()
  enable_language(CUDA)
  # CMake 3.25 does not know that nvcc 13 speaks C++20.
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
  endif()
  set(CMAKE_CUDA_STANDARD 20)
  find_package(CUDAToolkit REQUIRED)
endif()
message(STATUS "CUDA code: ${XTRAIN_CUDA_ENABLED}")

# xtrain_check_ptxas(TARGET sources...): the build fails where ptxas spills registers of these
# sources or serialises their wgmma (cmake/check_ptxas.sh).
function(xtrain_check_ptxas target)
  set_source_files_properties(${ARGN} PROPERTIES COMPILE_OPTIONS -Xptxas=-v)
  get_target_property(launcher ${target} CUDA_COMPILER_LAUNCHER)
  if(NOT launcher)
    set(launcher)
  endif()
  set_target_properties(${target} PROPERTIES CUDA_COMPILER_LAUNCHER
                        "${PROJECT_SOURCE_DIR}/cmake/check_ptxas.sh;${launcher}")
endfunction()
