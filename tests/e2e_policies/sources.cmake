# The synchronization policies in the program as its users run it: one entry for each class of the files
# below. Uses ../e2e/runner.py.
if(SIDESTEP_SANITIZE OR SIDESTEP_CUDA)
  return()
endif()
find_program(SIDESTEP_PYTHON NAMES python3 PATHS /usr/bin NO_DEFAULT_PATH)
find_program(SIDESTEP_PYTHON NAMES python3 REQUIRED)
find_program(SIDESTEP_MPIEXEC NAMES mpiexec mpirun)

foreach(case_file rounds_cases.py resume_cases.py journal_cases.py stall_cases.py straggler_cases.py option_cases.py)
  set(case_file ${CMAKE_CURRENT_LIST_DIR}/${case_file})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${case_file})
  file(STRINGS ${case_file} classes REGEX "^class [A-Za-z0-9_]+\\(.*\\):")
  list(FILTER classes EXCLUDE REGEX "Case\\(")
  foreach(class ${classes})
    string(REGEX REPLACE "^class ([A-Za-z0-9_]+).*" "\\1" class "${class}")
    add_test(NAME e2e_policies.${class} COMMAND ${SIDESTEP_PYTHON} ${case_file} ${class})
    set_tests_properties(e2e_policies.${class} PROPERTIES LABELS e2e RUN_SERIAL TRUE TIMEOUT 300
      SKIP_RETURN_CODE 77
      ENVIRONMENT "SIDESTEP_BIN=$<TARGET_FILE:sidestep>;SIDESTEP_SOURCE=${CMAKE_SOURCE_DIR};MPIEXEC=${SIDESTEP_MPIEXEC};PYTHONDONTWRITEBYTECODE=1")
  endforeach()
endforeach()
