# `cmake --install`: programs, libraries, headers, configs and what find_package(xtrain) needs.
#
# xtrain_install(LIBRARIES core autodiff ... PROGRAMS train gradcheck ...), where the library of a
# layer is the target xtrain_<layer>, seen from outside as xtrain::<layer>.
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

function(xtrain_install)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "" "LIBRARIES;PROGRAMS")
  set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/xtrain)
  set(include_dir ${CMAKE_INSTALL_INCLUDEDIR}/xtrain)

  # Sources include "core/tensor.h" and so do users: the folder of the layers is the include folder.
  foreach(layer IN LISTS arg_LIBRARIES)
    set_target_properties(xtrain_${layer} PROPERTIES EXPORT_NAME ${layer})
    install(TARGETS xtrain_${layer} EXPORT xtrain_targets INCLUDES DESTINATION ${include_dir})
    install(DIRECTORY ${PROJECT_SOURCE_DIR}/${layer} DESTINATION ${include_dir}
            FILES_MATCHING PATTERN "*.h")
  endforeach()
  install(TARGETS ${arg_PROGRAMS})
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/configs DESTINATION ${CMAKE_INSTALL_DATADIR}/xtrain)

  # xtrain::xtrain stands for all layers.
  add_library(xtrain INTERFACE)
  list(TRANSFORM arg_LIBRARIES PREPEND xtrain_ OUTPUT_VARIABLE layers)
  target_link_libraries(xtrain INTERFACE ${layers})
  install(TARGETS xtrain EXPORT xtrain_targets)

  install(EXPORT xtrain_targets NAMESPACE xtrain:: FILE xtrainTargets.cmake
          DESTINATION ${package_dir})
  configure_package_config_file(
    ${PROJECT_SOURCE_DIR}/cmake/xtrainConfig.cmake.in ${PROJECT_BINARY_DIR}/xtrainConfig.cmake
    INSTALL_DESTINATION ${package_dir})
  write_basic_package_version_file(
    ${PROJECT_BINARY_DIR}/xtrainConfigVersion.cmake COMPATIBILITY SameMinorVersion)
  install(FILES ${PROJECT_BINARY_DIR}/xtrainConfig.cmake
                ${PROJECT_BINARY_DIR}/xtrainConfigVersion.cmake
                ${PROJECT_SOURCE_DIR}/cmake/FindGloo.cmake
                ${PROJECT_SOURCE_DIR}/cmake/FindNCCL.cmake
                ${PROJECT_SOURCE_DIR}/cmake/FindPCRE2.cmake
                ${PROJECT_SOURCE_DIR}/cmake/Findutf8proc.cmake
                ${PROJECT_SOURCE_DIR}/cmake/FindOpenBLAS.cmake
                ${PROJECT_SOURCE_DIR}/cmake/FindxxHash.cmake
          DESTINATION ${package_dir})
endfunction()
