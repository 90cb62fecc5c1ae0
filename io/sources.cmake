# io: what enters and leaves. HDF5 only here.
add_library(sidestep_io STATIC
  io/checkpoint_file.cc
  io/checkpoint_folder.cc
  io/checkpoint_read.cc
  io/checkpoint_seal.cc
  io/checkpoint_write.cc
  io/data_checks.cc
  io/dataset.cc
  io/hdf5_dataset.cc
  io/hdf5_handles.cc
  io/hdf5_shard.cc
  io/hdf5_stream.cc
  io/idx_dataset.cc
  io/ledger.cc
  io/memory_dataset.cc
  io/metrics.cc
  io/normalisation.cc
  io/output_file.cc
  io/prefetch.cc
  io/rank_marks.cc
  io/run_folder.cc
  io/sampler.cc
  io/storage_thread.cc
  io/synthetic_dataset.cc
  io/trace_file.cc)
target_link_libraries(sidestep_io PUBLIC sidestep_device
  PRIVATE sidestep_hdf5 fmt::fmt nlohmann_json::nlohmann_json ZLIB::ZLIB)
