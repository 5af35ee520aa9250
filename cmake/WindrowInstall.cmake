# cmake --install: headers, both libraries, the program, the CMake package and pkg-config file.
include(CMakePackageConfigHelpers)

install(DIRECTORY include/windrow DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
set_target_properties(windrow_static PROPERTIES EXPORT_NAME windrow_static)
install(TARGETS windrow_static EXPORT windrow-static)
install(EXPORT windrow-static NAMESPACE windrow:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/windrow)
if(WINDROW_SHARED)
  set_target_properties(windrow_shared PROPERTIES EXPORT_NAME windrow_shared)
  install(TARGETS windrow_shared EXPORT windrow-shared)
  install(EXPORT windrow-shared NAMESPACE windrow:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/windrow)
endif()
if(TARGET windrow_cli)
  install(TARGETS windrow_cli)
endif()

configure_package_config_file(cmake/windrow-config.cmake.in windrow-config.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/windrow)
write_basic_package_version_file(windrow-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/windrow-config.cmake
              ${CMAKE_CURRENT_BINARY_DIR}/windrow-config-version.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/windrow)

file(RELATIVE_PATH WINDROW_PC_TO_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(cmake/windrow.pc.in windrow.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/windrow.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
