# Target PCRE2::pcre2: the regular expression library.
find_path(PCRE2_INCLUDE_DIR NAMES pcre2.h)
find_library(PCRE2_LIBRARY NAMES pcre2-8)
mark_as_advanced(PCRE2_INCLUDE_DIR PCRE2_LIBRARY)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(
  PCRE2 REQUIRED_VARS PCRE2_LIBRARY PCRE2_INCLUDE_DIR
  REASON_FAILURE_MESSAGE "Install libpcre2-dev, or run: bash tools/setup.sh")

if(PCRE2_FOUND AND NOT TARGET PCRE2::pcre2)
  add_library(PCRE2::pcre2 UNKNOWN IMPORTED)
  set_target_properties(PCRE2::pcre2 PROPERTIES
    IMPORTED_LOCATION "${PCRE2_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${PCRE2_INCLUDE_DIR}")
endif()
