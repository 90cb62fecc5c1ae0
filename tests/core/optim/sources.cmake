sidestep_test(NAME test_optim LABEL unit
  SOURCES
    core/optim/norm_test.cc
    core/optim/optimizer_test.cc
    core/optim/schedule_test.cc
    harness/allocation_count.cc
  LIBS sidestep_optim)
