# Decides what data-parallel training is built with: XTRAIN_GLOO_ENABLED and XTRAIN_NCCL_ENABLED.

# xtrain_backend(OPTION PACKAGE): AUTO takes the package when it is there, ON insists on it.
macro(xtrain_backend option package)
  set(XTRAIN_${option}_ENABLED OFF)
  if(XTRAIN_${option} STREQUAL "AUTO")
    find_package(${package} QUIET)
  elseif(XTRAIN_${option})
    find_package(${package} REQUIRED)
  endif()
  if(XTRAIN_${option} AND ${package}_FOUND)
    set(XTRAIN_${option}_ENABLED ON)
  endif()
  message(STATUS "${package}: ${XTRAIN_${option}_ENABLED}")
endmacro()

xtrain_backend(GLOO Gloo)
if(XTRAIN_CUDA_ENABLED)
  xtrain_backend(NCCL NCCL)
elseif(XTRAIN_NCCL STREQUAL "AUTO" OR NOT XTRAIN_NCCL)
  set(XTRAIN_NCCL_ENABLED OFF)
else()
  message(FATAL_ERROR "XTRAIN_NCCL=ON needs CUDA code: configure with -DXTRAIN_CUDA=ON")
endif()
