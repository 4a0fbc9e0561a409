# cmake -DROOT=... -DCOMPILER=... -DHEADER=... -P kernel_build.cmake: a hash of all that the speed of kernels depends
# on in a build, as a header: their sources, those of the steps that run them, the compiler with its flags.
cmake_minimum_required(VERSION 3.25)
file(GLOB_RECURSE sources ${ROOT}/src/kernels/*.cc ${ROOT}/src/kernels/*.h ${ROOT}/src/exec/*.cc ${ROOT}/src/exec/*.h
  ${ROOT}/src/base/thread_pool.cc ${ROOT}/cmake/isa.cmake)
list(FILTER sources EXCLUDE REGEX "_test")
list(SORT sources)
set(all "${COMPILER}")
foreach(source ${sources})
  file(SHA256 ${source} hash)
  string(APPEND all " ${hash}")
endforeach()
string(SHA256 build "${all}")
string(SUBSTRING ${build} 0 16 build)
file(CONFIGURE OUTPUT ${HEADER} CONTENT [=[// What the speed of kernels depends on in this build.
#pragma once
#define LUCID_KERNEL_BUILD "@build@"
]=] @ONLY)
