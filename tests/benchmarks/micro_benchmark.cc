// What a step is made of, one piece at a time: passes of a model, an update, a stream's own cost, an
// exchange among in-process ranks.
#include <benchmark/benchmark.h>

#include <thread>

#include "comm/thread_group.h"
#include "core/graph/executor.h"
#include "core/model/model.h"
#include "core/ops/threads.h"
#include "core/optim/optimizer.h"

namespace sidestep {
namespace {

struct NoSink final : GradSink {
  void grad_ready(ParamId, const Event&) override {}
  void last_read(ParamId, const Event&) override {}
};

void passes(benchmark::State& state, const char* model, bool backward) {
  set_compute_threads(1);
  const std::int64_t batch = state.range(0);
  ModelConfig config;
  config.name = model;
  Executor executor(make_model(config), {.device = {}, .batches = {batch}});
  executor.params().initialize(1);
  Stream stream = Stream::create({}, "compute", StreamMode::direct);
  NoSink sink;
  for (auto _ : state) {
    executor.forward(stream, batch, nullptr, 0);
    if (backward) executor.backward(stream, batch, sink, 0);
  }
  state.SetItemsProcessed(state.iterations() * batch);
}
BENCHMARK_CAPTURE(passes, lenet_forward, "lenet", false)->Arg(128);
BENCHMARK_CAPTURE(passes, lenet_forward_backward, "lenet", true)->Arg(128);
BENCHMARK_CAPTURE(passes, mlp_forward, "mlp", false)->Arg(256);
BENCHMARK_CAPTURE(passes, mlp_forward_backward, "mlp", true)->Arg(256);

void update(benchmark::State& state, const char* name) {
  const std::vector<ParamId> order = {0};
  ParamStore store({{.name = "w", .shape = Shape{state.range(0)}, .init = {}}}, order, Device{});
  OptimizerConfig config;
  config.name = name;
  const auto optimizer = make_optimizer(config, store);
  const UpdateScalars scalars = optimizer->scalars(0.1, 1);
  Stream stream = Stream::create({}, "update", StreamMode::direct);
  for (auto _ : state) optimizer->update(stream, store, order, &scalars);
  state.SetBytesProcessed(state.iterations() * state.range(0) * 4 * (name[0] == 's' ? 5 : 7));
}
BENCHMARK_CAPTURE(update, sgd, "sgd")->Arg(1 << 20);
BENCHMARK_CAPTURE(update, adamw, "adamw")->Arg(1 << 20);

void stream_round_trip(benchmark::State& state) {
  Stream stream = Stream::create({}, "compute");
  for (auto _ : state) {
    stream.host([] {});
    stream.record().wait();
  }
}
BENCHMARK(stream_round_trip);

void group_all_reduce(benchmark::State& state) {
  auto group = make_thread_group(2);
  std::vector<float> mine(static_cast<std::size_t>(state.range(0))), other(mine.size());
  const auto view = [&](std::vector<float>& values) {
    return View{.data = reinterpret_cast<std::byte*>(values.data()),
                .shape = Shape{state.range(0)},
                .dtype = DType::f32,
                .device = {}};
  };
  std::int64_t more = 1;
  const auto control = [&more] {
    return View{.data = reinterpret_cast<std::byte*>(&more),
                .shape = Shape{1},
                .dtype = DType::i64,
                .device = {}};
  };
  std::thread peer([&, comm = std::move(group[1])] {
    for (std::int64_t go = 1;;) {
      View flag = control();
      flag.data = reinterpret_cast<std::byte*>(&go);
      broadcast(*comm, flag, 0);
      if (go == 0) return;
      all_reduce(*comm, view(other), Reduce::sum);
    }
  });
  for (auto _ : state) {
    broadcast(*group[0], control(), 0);
    all_reduce(*group[0], view(mine), Reduce::sum);
  }
  more = 0;
  broadcast(*group[0], control(), 0);
  peer.join();
}
BENCHMARK(group_all_reduce)->Arg(1 << 18);

}  // namespace
}  // namespace sidestep
