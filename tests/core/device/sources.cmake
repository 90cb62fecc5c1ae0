sidestep_test(NAME test_device LABEL unit
  SOURCES
    core/device/buffer_test.cc
    core/device/cuda_test.cc
    core/device/event_test.cc
    core/device/stream_dag_test.cc
    core/device/stream_test.cc
    core/device/task_test.cc
    harness/allocation_count.cc
  LIBS sidestep_device)
