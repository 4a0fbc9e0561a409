# LUCID_SANITIZE=address,undefined | thread, set by the presets asan, tsan and fuzz.
if(LUCID_SANITIZE)
  add_compile_options(-fsanitize=${LUCID_SANITIZE} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${LUCID_SANITIZE})
  # With sanitizers on, g++ 12 calls members of std::regex uninitialised that are not.
  add_compile_options($<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  if(LUCID_SANITIZE STREQUAL "thread")
    # Asio's fences, which ThreadSanitizer does not see.
    add_compile_options($<$<CXX_COMPILER_ID:GNU>:-Wno-tsan>)
  endif()
  if(LUCID_SANITIZE MATCHES "undefined")
    add_compile_options(-fno-sanitize-recover=undefined)
  endif()
  # g++ 12 places 64-byte variables at addresses that are no multiples of 64 in the frames that it keeps for
  # detect_stack_use_after_return, and then reads them with instructions that want aligned addresses.
  if(LUCID_SANITIZE MATCHES "address" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    set(LUCID_ISA_SANITIZE " --param=asan-use-after-return=0")
  endif()
  if(LUCID_BUILD_FUZZERS)
    add_compile_options(-fsanitize=fuzzer-no-link)
  endif()
endif()
