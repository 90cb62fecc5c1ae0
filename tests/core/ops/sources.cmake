sidestep_test(NAME test_ops LABEL unit
  SOURCES
    core/ops/launch_test.cc
    core/ops/op_rules_test.cc
    core/ops/ops_test.cc
    core/ops/reference.cc
    harness/op_harness.cc
    harness/op_harness_test.cc
  LIBS sidestep_ops fmt::fmt)
