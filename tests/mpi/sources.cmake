add_executable(test_mpi mpi/mpi_test.cc)
target_link_libraries(test_mpi PRIVATE sidestep_mpi GTest::gtest)

# sidestep_mpi_test(NAME RANKS [COMMAND PREFIX...] [ARGS ...]): a test under mpirun.
function(sidestep_mpi_test name ranks)
  cmake_parse_arguments(T "" "" "PREFIX;ARGS" ${ARGN})
  add_test(NAME ${name} COMMAND ${T_PREFIX} ${MPIEXEC_EXECUTABLE} --oversubscribe --bind-to none
    ${MPIEXEC_NUMPROC_FLAG} ${ranks} $<TARGET_FILE:test_mpi> ${T_ARGS})
  # The environment lets root run it too, as in containers.
  set_tests_properties(${name} PROPERTIES LABELS mpi RUN_SERIAL ON TIMEOUT 120
    ENVIRONMENT "OMPI_ALLOW_RUN_AS_ROOT=1;OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
endfunction()

sidestep_mpi_test(test_mpi.two_ranks 2)
sidestep_mpi_test(test_mpi.four_ranks 4)
set(status_test ${CMAKE_CURRENT_SOURCE_DIR}/mpi/status_test.sh)
sidestep_mpi_test(test_mpi.abort_ends_all_ranks 2 PREFIX ${status_test} 7 ARGS --abort)
sidestep_mpi_test(test_mpi.watchdog_ends_a_hang 2 PREFIX ${status_test} 99 ARGS --hang)
