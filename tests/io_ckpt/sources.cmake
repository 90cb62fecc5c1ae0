sidestep_test(NAME test_io_ckpt LABEL unit
  SOURCES
    harness/allocation_count.cc
    ${CMAKE_CURRENT_LIST_DIR}/checkpoint_damage_test.cc
    ${CMAKE_CURRENT_LIST_DIR}/checkpoint_file_test.cc
    ${CMAKE_CURRENT_LIST_DIR}/checkpoint_folder_test.cc
    ${CMAKE_CURRENT_LIST_DIR}/checkpoint_kill_test.cc
    ${CMAKE_CURRENT_LIST_DIR}/metrics_test.cc
    ${CMAKE_CURRENT_LIST_DIR}/output_file_test.cc
    ${CMAKE_CURRENT_LIST_DIR}/run_folder_test.cc
    ${CMAKE_CURRENT_LIST_DIR}/trace_file_test.cc
  LIBS sidestep_io sidestep_hdf5 fmt::fmt nlohmann_json::nlohmann_json)
