sidestep_test(NAME test_optim LABEL unit
  SOURCES
    core/optim/count_allocations.cc
    core/optim/norm_test.cc
    core/optim/optimizer_test.cc
    core/optim/schedule_test.cc
  LIBS sidestep_optim)
