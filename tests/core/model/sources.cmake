sidestep_test(NAME test_model LABEL unit
  SOURCES core/model/model_test.cc
  LIBS sidestep_model sidestep_optim)
