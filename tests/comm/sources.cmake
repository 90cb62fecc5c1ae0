sidestep_test(NAME test_comm LABEL unit
  SOURCES
    comm/buckets_test.cc
    comm/chain_rank.cc
    comm/comm_thread_test.cc
    comm/ranks.cc
    comm/reducer_test.cc
    comm/round_engine_test.cc
    comm/sync_policy_test.cc
    comm/thread_group_test.cc
    harness/allocation_count.cc
  LIBS sidestep_comm)
