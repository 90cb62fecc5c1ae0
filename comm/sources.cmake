# comm: how ranks exchange. MPI only here.
add_library(sidestep_comm STATIC
  comm/accumulator.cc
  comm/arrival_board.cc
  comm/bucket_updater.cc
  comm/buckets.cc
  comm/close_message.cc
  comm/comm_thread.cc
  comm/communicator.cc
  comm/detector.cc
  comm/drop_tau.cc
  comm/heartbeat.cc
  comm/injector.cc
  comm/local_engine.cc
  comm/model_exchange.cc
  comm/outer_rule.cc
  comm/policies/balance.cc
  comm/policies/bsp.cc
  comm/policies/drop.cc
  comm/policies/model_presets.cc
  comm/policies/quorum_presets.cc
  comm/policies/window.cc
  comm/quorum_agent.cc
  comm/quorum_agent_main.cc
  comm/quorum_engine.cc
  comm/quorum_lane.cc
  comm/rank_speeds.cc
  comm/reducer.cc
  comm/round_engine.cc
  comm/round_header.cc
  comm/round_journal.cc
  comm/self_stop.cc
  comm/selsync_vote.cc
  comm/shares.cc
  comm/sync_policy.cc
  comm/thread_group.cc
  comm/update_numbers.cc)
target_link_libraries(sidestep_comm PUBLIC sidestep_graph sidestep_optim PRIVATE fmt::fmt nlohmann_json::nlohmann_json)

# MPI is a library of its own, so that in-process tests (ThreadSanitizer) do without it.
set(cuda_versions comm/no_cuda_versions.cc)
if(SIDESTEP_CUDA)
  set(cuda_versions comm/cuda_versions.cc)
endif()
add_library(sidestep_mpi STATIC
  ${cuda_versions}
  comm/mpi_communicator.cc
  comm/mpi_job.cc
  comm/mpi_mailbox.cc)
target_link_libraries(sidestep_mpi PUBLIC sidestep_comm PRIVATE MPI::MPI_CXX fmt::fmt)
target_compile_definitions(sidestep_mpi PRIVATE OMPI_SKIP_MPICXX)
if(SIDESTEP_CUDA)
  target_link_libraries(sidestep_mpi PRIVATE CUDA::cudart ${SIDESTEP_CUDNN_LIBRARY} ${SIDESTEP_NCCL_LIBRARY})
endif()
