// `sidestep eval --checkpoint FILE`: accuracy and loss of a checkpoint, exact for any rank count.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "app/agreement.h"
#include "app/commands.h"
#include "app/evaluate.h"
#include "app/failure.h"
#include "app/options.h"
#include "app/rank_info.h"
#include "app/saver.h"
#include "app/trainer.h"
#include "core/base/error.h"
#include "core/base/log.h"
#include "core/ops/threads.h"

namespace sidestep {
namespace {

/// The value of an option in the config a checkpoint holds.
std::string config_value(const std::string& config, const std::string& file, const std::string& key) {
  for (const ConfigLine& line : parse_config(config, file))
    if (line.key == key) return line.value;
  return "";
}

/// What eval needs, opened alike on every rank.
struct Inputs {
  CheckpointContent content;
  RunState state;
  DataPair data;
  Device device;
};

Inputs open(Settings& settings, MpiJob& job, StorageThread& storage) {
  Inputs in;
  in.device = choose_device(settings.device, job.local_rank());
  storage.read_now([&] { in.content = read_checkpoint(settings.checkpoint); });
  in.state = read_state(in.content, settings.checkpoint);
  if (origin_of(settings, "data") == Origin::standard)
    settings.data = config_value(in.state.config, settings.checkpoint, "data");
  in.data = open_data(settings.data, static_cast<std::uint64_t>(in.state.seed), storage,
                      in.state.model.classes);
  const Dataset& data = in.data.test ? *in.data.test : *in.data.train;
  const Shape wanted{in.state.model.height, in.state.model.width, in.state.model.channels};
  if (!(data.sample_shape() == wanted))
    fail(Exit::data, fmt::format("{}: expected samples of {}, as the checkpoint's model was trained "
                                 "on, found {}; give --data that fits",
                                 settings.data, to_string(wanted), to_string(data.sample_shape())));
  return in;
}

}  // namespace

int run_eval(Settings& settings, MpiJob& job) {
  auto world = job.world();
  StorageThread storage;
  Inputs in;
  agree(*world, build_facts());
  agree(*world, settings_facts(settings));
  together(*world, [&] { in = open(settings, job, storage); });
  const auto ranks = gather_rank_info(*world, own_info(job, in.device));
  const int threads = compute_threads_for(settings, ranks, job.rank());
  set_compute_threads(threads);
  Dataset& data = in.data.test ? *in.data.test : *in.data.train;
  const ModelBuilder build = make_model(in.state.model);
  std::optional<Executor> holder;
  std::optional<Evaluator> evaluator;
  together(*world, [&] {
    holder.emplace(build, Executor::Options{.device = in.device, .batches = {1}});
    restore_weights(in.content, settings.checkpoint, holder->params());
    evaluator.emplace(build, holder->shared_params(), data,
                      std::max<std::int64_t>(settings.eval_batch / job.size(), 1), job.rank(),
                      job.size());
  });
  CommThread comm(std::move(world), {});
  Stream compute = Stream::create(in.device, "compute");
  compute.host([threads] { set_compute_threads(threads); });
  const EvalResult result = evaluator->run(compute, comm, in.state.position.step);
  log_info(fmt::format("data: {} ({} part)", data.description(), in.data.test ? "test" : "training"));
  log_info(fmt::format("checkpoint {}: step {}, accuracy {:.2f} % ({} of {}), loss {:.6f}",
                       settings.checkpoint, in.state.position.step, 100 * result.accuracy(),
                       result.correct, result.samples, result.loss));
  return static_cast<int>(Exit::done);
}

}  // namespace sidestep
