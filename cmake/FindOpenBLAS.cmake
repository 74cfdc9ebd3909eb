# Target OpenBLAS::OpenBLAS: the library and the folder of its cblas.h, wherever the distribution
# keeps them. No other BLAS will do: the thread count is set through OpenBLAS's own functions.
find_path(OpenBLAS_INCLUDE_DIR NAMES openblas_config.h
          PATH_SUFFIXES openblas-pthread openblas openblas-openmp openblas-serial)
find_library(OpenBLAS_LIBRARY NAMES openblas openblasp
             PATH_SUFFIXES openblas-pthread openblas openblas-openmp openblas-serial)
mark_as_advanced(OpenBLAS_INCLUDE_DIR OpenBLAS_LIBRARY)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(
  OpenBLAS REQUIRED_VARS OpenBLAS_LIBRARY OpenBLAS_INCLUDE_DIR
  REASON_FAILURE_MESSAGE "Install libopenblas-pthread-dev, or run: bash tools/setup.sh")

if(OpenBLAS_FOUND AND NOT TARGET OpenBLAS::OpenBLAS)
  add_library(OpenBLAS::OpenBLAS UNKNOWN IMPORTED)
  set_target_properties(OpenBLAS::OpenBLAS PROPERTIES
    IMPORTED_LOCATION "${OpenBLAS_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${OpenBLAS_INCLUDE_DIR}")
endif()
