sidestep_test(NAME test_io_data LABEL unit
  SOURCES
    harness/allocation_count.cc
    io/files.cc
    io/hdf5_test.cc
    io/idx_test.cc
    io/ledger_test.cc
    io/normalisation_test.cc
    io/prefetch_test.cc
    io/rank_marks_test.cc
    io/sampler_test.cc
    io/storage_test.cc
    io/synthetic_test.cc
  LIBS sidestep_io sidestep_hdf5 ZLIB::ZLIB)
