sidestep_test(NAME test_graph LABEL unit
  SOURCES
    tests/core/graph/autodiff_test.cc
    tests/core/graph/executor_test.cc
    tests/core/graph/graph_test.cc
    tests/core/graph/memory_plan_test.cc
    tests/core/graph/param_store_test.cc
  LIBS sidestep_graph sidestep_ops sidestep_device)
