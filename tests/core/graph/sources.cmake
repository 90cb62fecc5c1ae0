sidestep_test(NAME test_graph LABEL unit
  SOURCES
    core/graph/autodiff_test.cc
    core/graph/executor_test.cc
    core/graph/graph_test.cc
    core/graph/memory_plan_test.cc
    core/graph/param_store_test.cc
  LIBS sidestep_graph sidestep_ops sidestep_device)
