sidestep_test(NAME test_base LABEL unit
  SOURCES
    core/base/error_test.cc
    core/base/rng_test.cc
    core/base/shape_test.cc
  LIBS sidestep_base)
