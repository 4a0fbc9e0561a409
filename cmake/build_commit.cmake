# cmake -DROOT=... -DHEADER=... -P build_commit.cmake: the commit of the checkout as a header.
cmake_minimum_required(VERSION 3.25)
execute_process(COMMAND git -C ${ROOT} rev-parse --short HEAD
  OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
if(failed OR NOT commit)
  set(commit unknown)
endif()
file(CONFIGURE OUTPUT ${HEADER} CONTENT [=[// The commit of the checkout that was built.
#pragma once
#define LUCID_BUILD_COMMIT "@commit@"
]=] @ONLY)
