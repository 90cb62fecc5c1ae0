// `sidestep bench`: throughput of training steps, compute only and with exchange, interleaved.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "app/agreement.h"
#include "app/commands.h"
#include "app/failure.h"
#include "app/options.h"
#include "app/rank_info.h"
#include "app/rig.h"
#include "app/trainer.h"
#include "comm/thread_group.h"
#include "core/base/error.h"
#include "core/base/log.h"
#include "io/output_file.h"
#include "io/storage_thread.h"

namespace sidestep {
namespace {

constexpr std::int64_t kWarmUpSteps = 10;

/// One measurement: means over its steps.
struct Window {
  double samples_per_second = 0;  ///< of all ranks
  double step_ms = 0, compute_ms = 0, exposed_ms = 0, input_ms = 0;
};

Window measure(Rig& rig, std::int64_t steps, std::int64_t samples_per_step) {
  Window sum;
  const std::int64_t begin = now_ns();
  const auto add = [&](const StepReport& r) {
    sum.compute_ms += static_cast<double>(r.compute_ns) * 1e-6;
    sum.exposed_ms += static_cast<double>(r.exposed_ns) * 1e-6;
    sum.input_ms += static_cast<double>(r.input_wait_ns) * 1e-6;
  };
  for (std::int64_t i = 0; i < steps; ++i) {
    rig.enqueue(false);
    while (rig.outstanding() > rig.may_lag()) add(rig.complete());
  }
  while (rig.outstanding() > 0) add(rig.complete());
  const double seconds = static_cast<double>(now_ns() - begin) * 1e-9;
  const auto n = static_cast<double>(steps);
  return {.samples_per_second = static_cast<double>(samples_per_step) * n / seconds,
          .step_ms = seconds * 1e3 / n,
          .compute_ms = sum.compute_ms / n,
          .exposed_ms = sum.exposed_ms / n,
          .input_ms = sum.input_ms / n};
}

double median(std::vector<Window> windows, double Window::* field) {
  std::ranges::sort(windows, {}, field);
  const std::size_t half = windows.size() / 2;
  return windows.size() % 2 == 1 ? windows[half].*field
                                 : (windows[half - 1].*field + windows[half].*field) / 2;
}

nlohmann::ordered_json result_of(const std::vector<Window>& windows) {
  const double step = median(windows, &Window::step_ms);
  const double input = median(windows, &Window::input_ms);
  return {{"samples_per_second", median(windows, &Window::samples_per_second)},
          {"step_ms", step},
          {"compute_ms", median(windows, &Window::compute_ms)},
          {"exposed_ms", median(windows, &Window::exposed_ms)},
          {"input_wait_ms", input},
          {"input_share", step > 0 ? input / step : 0}};
}

std::string line_of(const std::string& name, const nlohmann::ordered_json& r) {
  return fmt::format(
      "{:<14} {:>10.0f} samples/s  step {:>8.3f} ms  compute {:>8.3f} ms  exposed {:>7.3f} ms  "
      "input wait {:.1f} %",
      name, r["samples_per_second"].get<double>(), r["step_ms"].get<double>(),
      r["compute_ms"].get<double>(), r["exposed_ms"].get<double>(),
      100 * r["input_share"].get<double>());
}

/// What a job measures: both kinds of rig, in turn.
struct Measured {
  std::vector<Window> compute, exchange;
};

Measured measure_both(const Settings& settings, const Rig::Config& with_exchange,
                      std::unique_ptr<Communicator> world) {
  const int ranks = world->size();
  Settings alone = settings;
  alone.batch = settings.batch / ranks;
  const Rig::Config compute_only{.settings = alone,
                                 .device = with_exchange.device,
                                 .model = with_exchange.model,
                                 .data = with_exchange.data,
                                 .goal = with_exchange.goal,
                                 .threads = with_exchange.threads,
                                 .shared_update = with_exchange.shared_update};
  Rig compute_rig(compute_only, std::move(make_thread_group(1)[0]));
  Rig exchange_rig(with_exchange, std::move(world));
  compute_rig.start({});
  exchange_rig.start({});
  measure(compute_rig, kWarmUpSteps, alone.batch);
  measure(exchange_rig, kWarmUpSteps, settings.batch);
  Measured measured;
  for (std::int64_t i = 0; i < settings.bench_repeats; ++i) {
    measured.compute.push_back(measure(compute_rig, settings.bench_steps, settings.batch));
    measured.exchange.push_back(measure(exchange_rig, settings.bench_steps, settings.batch));
  }
  return measured;
}

void report(const Settings& settings, int ranks, int threads, bool shared,
            const Measured& measured) {
  const nlohmann::ordered_json json = {{"model", settings.model},
                                       {"ranks", ranks},
                                       {"threads", threads},
                                       {"batch", settings.batch},
                                       {"overlap", settings.overlap},
                                       {"update_thread", shared ? "shared" : "own"},
                                       {"steps", settings.bench_steps},
                                       {"repeats", settings.bench_repeats},
                                       {"compute_only", result_of(measured.compute)},
                                       {"with_exchange", result_of(measured.exchange)}};
  log_info(fmt::format("{}: {} ranks x {} threads, global batch {}, overlap {}, medians of {} x {} steps",
                       settings.model, ranks, threads, settings.batch, settings.overlap,
                       settings.bench_repeats, settings.bench_steps));
  log_info(line_of("compute only", json["compute_only"]));
  log_info(line_of("with exchange", json["with_exchange"]));
  if (!settings.json.empty()) write_file_atomically(settings.json, json.dump(2) + "\n");
}

}  // namespace

int run_bench(Settings& settings, MpiJob& job) {
  auto world = job.world();
  StorageThread storage;
  DataPair data;
  Device device;
  agree(*world, build_facts());
  agree(*world, settings_facts(settings));
  agree_on_seed(*world, settings);
  together(*world, [&] {
    device = choose_device(settings.device, job.local_rank());
    if (job.rank() == 0 && !settings.json.empty()) check_output_path(settings.json, "--json");
    data = open_data(settings.data, static_cast<std::uint64_t>(settings.seed), storage);
    if (settings.batch % job.size() != 0 || settings.batch > data.train->size())
      fail(Exit::settings, fmt::format("--batch: expected a multiple of {} ranks, at most {} samples, "
                                       "found {}; choose another for bench",
                                       job.size(), data.train->size(), settings.batch));
  });
  const auto ranks = gather_rank_info(*world, own_info(job, device));
  const int threads = compute_threads_for(settings, ranks, job.rank());
  const bool shared = shares_update_thread(settings, threads);
  const Rig::Config config{
      .settings = settings,
      .device = device,
      .model = model_from(settings, *data.train),
      .data = *data.train,
      .goal = {.steps = kWarmUpSteps + settings.bench_steps * settings.bench_repeats},
      .threads = threads,
      .shared_update = shared};
  const Measured measured = measure_both(settings, config, std::move(world));
  if (job.rank() == 0) report(settings, job.size(), threads, shared, measured);
  return static_cast<int>(Exit::done);
}

}  // namespace sidestep
