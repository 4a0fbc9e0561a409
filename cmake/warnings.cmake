# Strict warnings for our own targets; none for what we link.
add_library(lucid_warnings INTERFACE)
target_compile_options(lucid_warnings INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Wold-style-cast -Wcast-qual
  -Wconversion -Wno-sign-conversion -Wimplicit-fallthrough -Wundef
  # g++ 12 warns of std::string operators that cannot overlap (GCC bug 105651).
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)
option(LUCID_WERROR "Turn warnings into errors" OFF)
if(LUCID_WERROR)
  target_compile_options(lucid_warnings INTERFACE -Werror)
endif()
