# The program as its users run it, under mpirun: one entry for each class of tests/e2e/*_cases.py. A
# class whose name ends in Case is a base of others.
# A sanitizer's run-time library inside mpirun, or a slower build, would only blur these.
if(SIDESTEP_SANITIZE OR SIDESTEP_CUDA)
  return()
endif()
# It takes the allocator's names for itself, as a sanitizer does.
sidestep_test(NAME test_step_loop LABEL unit SOURCES app/step_loop_test.cc harness/malloc_count.cc
  LIBS sidestep_app)
target_link_options(test_step_loop PRIVATE -rdynamic)  # so that callers have names

# Debian's own interpreter first: h5py and numpy belong to it.
find_program(SIDESTEP_PYTHON NAMES python3 PATHS /usr/bin NO_DEFAULT_PATH)
find_program(SIDESTEP_PYTHON NAMES python3 REQUIRED)
find_program(SIDESTEP_MPIEXEC NAMES mpiexec mpirun)

file(GLOB case_files CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/*_cases.py)
foreach(case_file ${case_files})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${case_file})
  file(STRINGS ${case_file} classes REGEX "^class [A-Za-z0-9_]+\\(.*\\):")
  list(FILTER classes EXCLUDE REGEX "Case\\(")
  foreach(class ${classes})
    string(REGEX REPLACE "^class ([A-Za-z0-9_]+).*" "\\1" class "${class}")
    add_test(NAME e2e.${class} COMMAND ${SIDESTEP_PYTHON} ${case_file} ${class})
    set_tests_properties(e2e.${class} PROPERTIES LABELS e2e RUN_SERIAL TRUE TIMEOUT 300 SKIP_RETURN_CODE 77
      ENVIRONMENT "SIDESTEP_BIN=$<TARGET_FILE:sidestep>;SIDESTEP_SOURCE=${CMAKE_SOURCE_DIR};MPIEXEC=${SIDESTEP_MPIEXEC};PYTHONDONTWRITEBYTECODE=1")
  endforeach()
endforeach()

add_test(NAME long.quickstart COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/e2e/quickstart_test.sh
  ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR}/quickstart-test)
set_tests_properties(long.quickstart PROPERTIES LABELS long TIMEOUT 3600 RUN_SERIAL ON)
