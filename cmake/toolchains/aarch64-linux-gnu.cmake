# Cross-compiles for 64-bit Arm with Debian's g++-aarch64-linux-gnu; tests run under qemu-aarch64. Libraries come from
# build/aarch64-root, which scripts/aarch64_root.sh fills; LUCID_AARCH64_ROOT names another folder.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)

set(LUCID_AARCH64_ROOT "${CMAKE_CURRENT_LIST_DIR}/../../build/aarch64-root" CACHE PATH
    "Root of an aarch64 Debian with the libraries that Lucid uses")
get_filename_component(CMAKE_SYSROOT "${LUCID_AARCH64_ROOT}" ABSOLUTE)
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES LUCID_AARCH64_ROOT)

set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_SYSROOT_DIR} "${CMAKE_SYSROOT}")
set(ENV{PKG_CONFIG_LIBDIR}
    "${CMAKE_SYSROOT}/usr/lib/aarch64-linux-gnu/pkgconfig:${CMAKE_SYSROOT}/usr/share/pkgconfig")

set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L "${CMAKE_SYSROOT}")
