sidestep_test(NAME test_comm LABEL unit
  SOURCES
    comm/accumulator_test.cc
    comm/arrival_board_test.cc
    comm/buckets_test.cc
    comm/chain_rank.cc
    comm/comm_agent_test.cc
    comm/comm_thread_test.cc
    comm/detector_test.cc
    comm/heartbeat_test.cc
    comm/injector_test.cc
    comm/local_engine_test.cc
    comm/local_rank.cc
    comm/local_round_test.cc
    comm/local_runs.cc
    comm/local_votes_test.cc
    comm/outer_rule_test.cc
    comm/quorum_engine_test.cc
    comm/quorum_rank.cc
    comm/ranks.cc
    comm/reducer_test.cc
    comm/round_engine_test.cc
    comm/round_journal_test.cc
    comm/self_stop_test.cc
    comm/sync_policy_test.cc
    comm/thread_group_test.cc
    harness/allocation_count.cc
  LIBS sidestep_comm)
