# cmake --install: the binary, liblucid with its headers, and a package file for find_package(lucid).
include(CMakePackageConfigHelpers)
install(TARGETS lucid lucid_cli EXPORT lucidTargets
  RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY src/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/lucid FILES_MATCHING PATTERN "*.h"
  PATTERN "*-inl.h" EXCLUDE PATTERN "cli" EXCLUDE PATTERN "kernels/cpu" EXCLUDE PATTERN "kernels/reference" EXCLUDE)
install(EXPORT lucidTargets NAMESPACE lucid:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/lucid)
configure_package_config_file(cmake/lucidConfig.cmake.in ${CMAKE_BINARY_DIR}/lucidConfig.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/lucid)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/lucidConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/lucidConfig.cmake ${CMAKE_BINARY_DIR}/lucidConfigVersion.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/lucid)
