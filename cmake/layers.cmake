# lucid_module(NAME [NO_LIBRARY] DEPS ... LIBS ...): an object library from every .cc of the folder, plus
# <name>_test from its *_test.cc files. DEPS are modules on lower layers; scripts/check_layers.py checks
# that the include lines say the same. All modules below cli make up the shared library liblucid.
set_property(GLOBAL PROPERTY LUCID_MODULES "")

function(lucid_module NAME)
  cmake_parse_arguments(ARG "NO_LIBRARY" "" "DEPS;LIBS" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cc)
  set(tests ${sources})
  list(FILTER sources EXCLUDE REGEX "_test\\.cc$")
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")

  if(NOT sources) # headers only
    add_library(lucid_${NAME} INTERFACE)
    set(scope INTERFACE)
  else()
    add_library(lucid_${NAME} OBJECT ${sources})
    set(scope PUBLIC)
    target_link_libraries(lucid_${NAME} PRIVATE lucid_warnings)
  endif()
  target_include_directories(lucid_${NAME} ${scope} $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src>)
  # Between object libraries only usage requirements travel; the objects are linked once, into liblucid.
  list(TRANSFORM ARG_DEPS PREPEND lucid_ OUTPUT_VARIABLE dep_targets)
  target_link_libraries(lucid_${NAME} ${scope} ${dep_targets})
  target_link_libraries(lucid_${NAME} ${scope} ${ARG_LIBS})

  if(NOT ARG_NO_LIBRARY)
    set_property(GLOBAL APPEND PROPERTY LUCID_MODULES ${NAME})
  endif()
  if(LUCID_BUILD_TESTS AND tests)
    set_property(GLOBAL APPEND PROPERTY LUCID_TESTED_MODULES ${NAME})
    set_property(GLOBAL PROPERTY LUCID_TESTS_${NAME} "${tests}")
    set_property(GLOBAL PROPERTY LUCID_LIBS_${NAME} "${ARG_LIBS}")
  endif()
endfunction()
