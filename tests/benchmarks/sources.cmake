# Micro-benchmarks (not tests): build/test/tests/bench_micro [--benchmark_filter=...]
find_package(benchmark QUIET)
if(benchmark_FOUND AND NOT SIDESTEP_SANITIZE)
  add_executable(bench_micro benchmarks/micro_benchmark.cc)
  target_link_libraries(bench_micro PRIVATE sidestep_comm sidestep_model sidestep_optim
    benchmark::benchmark_main)
endif()
