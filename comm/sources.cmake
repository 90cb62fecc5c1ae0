# comm: how ranks exchange. MPI only here.
add_library(sidestep_comm STATIC
  comm/bucket_updater.cc
  comm/buckets.cc
  comm/comm_thread.cc
  comm/communicator.cc
  comm/policies/bsp.cc
  comm/reducer.cc
  comm/round_engine.cc
  comm/sync_policy.cc
  comm/thread_group.cc)
target_link_libraries(sidestep_comm PUBLIC sidestep_graph sidestep_optim PRIVATE fmt::fmt)

# MPI is a library of its own, so that in-process tests (ThreadSanitizer) do without it.
set(cuda_versions comm/no_cuda_versions.cc)
if(SIDESTEP_CUDA)
  set(cuda_versions comm/cuda_versions.cc)
endif()
add_library(sidestep_mpi STATIC
  ${cuda_versions}
  comm/mpi_communicator.cc
  comm/mpi_job.cc)
target_link_libraries(sidestep_mpi PUBLIC sidestep_comm PRIVATE MPI::MPI_CXX fmt::fmt)
target_compile_definitions(sidestep_mpi PRIVATE OMPI_SKIP_MPICXX)
if(SIDESTEP_CUDA)
  target_link_libraries(sidestep_mpi PRIVATE CUDA::cudart ${SIDESTEP_CUDNN_LIBRARY} ${SIDESTEP_NCCL_LIBRARY})
endif()
