# Tests of the tree itself, of the scripts and of the installation: once, in the ordinary build.
if(SIDESTEP_SANITIZE OR SIDESTEP_CUDA)
  return()
endif()
# Debian's own interpreter first: h5py and numpy belong to it.
find_program(SIDESTEP_PYTHON NAMES python3 PATHS /usr/bin NO_DEFAULT_PATH)
find_program(SIDESTEP_PYTHON NAMES python3 REQUIRED)

foreach(lint layers size words)
  add_test(NAME lint.${lint}
    COMMAND ${SIDESTEP_PYTHON} ${CMAKE_SOURCE_DIR}/tests/lint/${lint}_test.py ${CMAKE_SOURCE_DIR})
  add_test(NAME lint.${lint}.self
    COMMAND ${SIDESTEP_PYTHON} ${CMAKE_SOURCE_DIR}/tests/lint/${lint}_test.py ${CMAKE_SOURCE_DIR} --self-test)
  set_tests_properties(lint.${lint} lint.${lint}.self PROPERTIES LABELS unit TIMEOUT 60)
endforeach()
add_test(NAME lint.report
  COMMAND ${SIDESTEP_PYTHON} ${CMAKE_SOURCE_DIR}/tests/lint/report_test.py ${CMAKE_SOURCE_DIR})
add_test(NAME lint.suite_table
  COMMAND ${SIDESTEP_PYTHON} ${CMAKE_SOURCE_DIR}/tests/lint/suite_table_test.py ${CMAKE_SOURCE_DIR})
add_test(NAME lint.shell COMMAND ${CMAKE_SOURCE_DIR}/tests/lint/shell_test.sh ${CMAKE_SOURCE_DIR})
add_test(NAME jobs.deps COMMAND ${CMAKE_SOURCE_DIR}/tests/lint/deps_test.sh ${CMAKE_SOURCE_DIR})
add_test(NAME lint.readme COMMAND ${SIDESTEP_PYTHON} ${CMAKE_SOURCE_DIR}/tests/lint/readme_test.py
  ${CMAKE_SOURCE_DIR} $<TARGET_FILE:sidestep>)
set_tests_properties(jobs.deps lint.report lint.suite_table lint.shell lint.readme PROPERTIES LABELS unit TIMEOUT 60
  SKIP_RETURN_CODE 77)

set(e2e ${CMAKE_SOURCE_DIR}/tests/e2e)
add_test(NAME install.moved
  COMMAND ${e2e}/install_test.sh ${CMAKE_BINARY_DIR} ${CMAKE_BINARY_DIR}/install-test ${PROJECT_VERSION})
add_test(NAME install.prefix
  COMMAND ${e2e}/prefix_build.sh ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR}/packages)
add_test(NAME install.missing_library
  COMMAND ${e2e}/missing_library_test.sh ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR}/missing-test)
add_test(NAME readme.examples COMMAND ${SIDESTEP_PYTHON} ${e2e}/readme_examples_test.py
  ${CMAKE_SOURCE_DIR} $<TARGET_FILE:sidestep> ${CMAKE_BINARY_DIR}/readme-test)
add_test(NAME jobs.run COMMAND ${e2e}/run_script_test.sh ${CMAKE_SOURCE_DIR})
set_tests_properties(jobs.run install.moved install.missing_library readme.examples PROPERTIES LABELS e2e
  TIMEOUT 300 SKIP_RETURN_CODE 77)
set_tests_properties(install.prefix PROPERTIES LABELS e2e TIMEOUT 1200 SKIP_RETURN_CODE 77)
