#include "app/saver.h"

#include <fmt/format.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <set>
#include <sstream>

#include "app/host_view.h"
#include "app/versions.h"
#include "core/base/error.h"

namespace sidestep {
namespace {

const std::string kParams = "/model/params/";

std::string slot_path(const std::string& slot, const std::string& name) {
  return "/optimizer/" + slot + "/" + name;
}

/// Host bytes seen as `like` is.
View host_view(std::byte* bytes, const View& like) {
  return {.data = bytes, .shape = like.shape, .dtype = like.dtype, .device = {}};
}

CheckpointTensor tensor_of(std::string path, const View& view) {
  CheckpointTensor tensor{.path = std::move(path),
                          .shape = view.shape,
                          .dtype = view.dtype,
                          .bytes = std::vector<std::byte>(view.bytes())};
  Stream stream = Stream::create(view.device, "snapshot", StreamMode::direct);
  copy(stream, host_view(tensor.bytes.data(), view), view);
  stream.synchronize();
  return tensor;
}

/// Copies the dataset into the view, or says in `problems` what is wrong with it.
void load_tensor(const CheckpointContent& content, const std::string& path, const View& view,
                 std::string& problems) {
  const CheckpointTensor* tensor = content.find(path);
  if (tensor == nullptr) {
    problems += fmt::format("; {} is missing", path);
  } else if (!(tensor->shape == view.shape) || tensor->dtype != view.dtype) {
    problems += fmt::format("; {} is {} {} instead of {} {}", path, to_string(tensor->dtype),
                            to_string(tensor->shape), to_string(view.dtype), to_string(view.shape));
  } else {
    Stream stream = Stream::create(view.device, "restore", StreamMode::direct);
    copy(stream, view, host_view(const_cast<std::byte*>(tensor->bytes.data()), view));
    stream.synchronize();
  }
}

template <class T>
T attribute(const CheckpointContent& content, const std::string& file, const std::string& group,
            const std::string& name) {
  const auto value = content.attribute(group, name);
  if (value && std::holds_alternative<T>(*value)) return std::get<T>(*value);
  fail(Exit::checkpoint,
       fmt::format(
           "{}: expected the attribute {} of group {}, found {}; this is not a checkpoint of "
           "a training run, use another file",
           file, name, group, value ? "another type" : "none"));
}

/// "12-20,31-40", or nothing
std::string text_of(const std::vector<Range>& ranges) {
  std::string text;
  for (const Range& range : ranges)
    text += fmt::format("{}{}-{}", text.empty() ? "" : ",", range.begin, range.end);
  return text;
}

std::vector<Range> ranges_of(const std::string& text) {
  std::vector<Range> ranges;
  std::istringstream in(text);
  char mark = ',';
  for (Range range; mark == ',' && in >> range.begin >> mark >> range.end; in >> mark)
    ranges.push_back(range);
  return ranges;
}

/// The part of a flat tensor that belongs to a parameter.
View part_of(const View& flat, const ParamStore& params, ParamId p) {
  View part = flat;
  part.data += static_cast<std::size_t>(params.offset(p)) * size_of(flat.dtype);
  part.shape = params.spec(p).shape;
  return part;
}

std::string extra_folder(const Engine::Extra& extra, int rank) {
  return extra.per_rank ? fmt::format("/sync/rank/{}/{}/", rank, extra.name)
                        : fmt::format("/sync/{}/", extra.name);
}

void add_extra(CheckpointContent& content, const ParamStore& params, const View& flat,
               const std::string& folder) {
  for (ParamId p = 0; p < params.count(); ++p)
    content.tensors.push_back(tensor_of(folder + params.spec(p).name, part_of(flat, params, p)));
}

/// False where the file does not hold all of it.
bool load_extra(const CheckpointContent& content, const ParamStore& params, const View& flat,
                const std::string& folder) {
  std::string problems;
  for (ParamId p = 0; p < params.count(); ++p)
    load_tensor(content, folder + params.spec(p).name, part_of(flat, params, p), problems);
  return problems.empty();
}

void copy_now(const View& to, const View& from) {
  Stream stream = Stream::create(to.device, "extra", StreamMode::direct);
  copy(stream, to, from);
  stream.synchronize();
}

}  // namespace

CheckpointContent make_content(const ParamStore& params, const RunState& s) {
  CheckpointContent content;
  for (ParamId p = 0; p < params.count(); ++p) {
    content.tensors.push_back(tensor_of(kParams + params.spec(p).name, params.value(p)));
    for (int slot = 0; slot < params.slots(); ++slot)
      content.tensors.push_back(
          tensor_of(slot_path(params.slot_name(slot), params.spec(p).name), params.slot(slot, p)));
  }
  std::string hidden;
  for (const auto width : s.model.hidden)
    hidden += (hidden.empty() ? "" : ",") + std::to_string(width);
  content.attributes["/model"] = {{"name", s.model.name},       {"height", s.model.height},
                                  {"width", s.model.width},     {"channels", s.model.channels},
                                  {"classes", s.model.classes}, {"hidden", hidden}};
  content.attributes["/optimizer"] = {{"name", s.optimizer}, {"updates", s.position.step}};
  content.attributes["/sync"] = {{"policy", s.policy}, {"state", s.policy_state}};
  content.attributes["/data"] = {{"epoch", s.position.cursor.epoch},
                                 {"position", s.position.cursor.position},
                                 {"returned", text_of(s.returned)},
                                 {"description", s.data},
                                 {"dataset_digest", fmt::format("{:016x}", s.data_digest)}};
  content.attributes["/run"] = {{"step", s.position.step},
                                {"epoch", s.position.cursor.epoch},
                                {"samples_seen", s.position.samples_seen},
                                {"seed", s.seed},
                                {"ranks", std::int64_t{s.ranks}},
                                {"config", s.config},
                                {"version", program_version()}};
  if (s.best) content.attributes["/run"].emplace("best", *s.best);
  return content;
}

RunState read_state(const CheckpointContent& content, const std::string& file) {
  const auto integer = [&](const char* group, const char* name) {
    return attribute<std::int64_t>(content, file, group, name);
  };
  const auto text = [&](const char* group, const char* name) {
    return attribute<std::string>(content, file, group, name);
  };
  const auto optional_text = [&](const char* group, const char* name) {
    return content.attribute(group, name) ? text(group, name) : std::string();
  };
  RunState s;
  s.position = {.step = integer("/run", "step"),
                .samples_seen = integer("/run", "samples_seen"),
                .cursor = {integer("/data", "epoch"), integer("/data", "position")}};
  s.seed = integer("/run", "seed");
  s.ranks = static_cast<int>(integer("/run", "ranks"));
  s.config = text("/run", "config");
  s.model = {.name = text("/model", "name"),
             .height = integer("/model", "height"),
             .width = integer("/model", "width"),
             .channels = integer("/model", "channels"),
             .classes = integer("/model", "classes"),
             .hidden = {}};
  const std::string hidden = text("/model", "hidden");
  for (std::size_t at = 0; at < hidden.size();) {
    const std::size_t comma = std::min(hidden.find(',', at), hidden.size());
    s.model.hidden.push_back(std::stoll(hidden.substr(at, comma - at)));
    at = comma + 1;
  }
  s.data = text("/data", "description");
  s.data_digest = std::stoull(text("/data", "dataset_digest"), nullptr, 16);
  s.optimizer = text("/optimizer", "name");
  s.policy = text("/sync", "policy");
  s.policy_state = optional_text("/sync", "state");
  s.returned = ranges_of(optional_text("/data", "returned"));
  if (const auto best = content.attribute("/run", "best")) s.best = std::get<double>(*best);
  return s;
}

void restore_weights(const CheckpointContent& content, const std::string& file,
                     ParamStore& params) {
  std::string problems;
  std::set<std::string> known;
  for (ParamId p = 0; p < params.count(); ++p) {
    known.insert(kParams + params.spec(p).name);
    load_tensor(content, kParams + params.spec(p).name, params.value(p), problems);
  }
  for (const CheckpointTensor& tensor : content.tensors)
    if (tensor.path.starts_with(kParams) && !known.contains(tensor.path))
      problems += fmt::format("; {} is not of this model", tensor.path);
  if (problems.empty()) return;
  fail(Exit::checkpoint,
       fmt::format("{}: the weights do not fit the model{}; use the model options "
                   "the checkpoint was made with (sidestep inspect shows them)",
                   file, problems));
}

void restore_slots(const CheckpointContent& content, const std::string& file, ParamStore& params) {
  std::string problems;
  for (int slot = 0; slot < params.slots(); ++slot)
    for (ParamId p = 0; p < params.count(); ++p)
      load_tensor(content, slot_path(params.slot_name(slot), params.spec(p).name),
                  params.slot(slot, p), problems);
  if (problems.empty()) return;
  fail(Exit::checkpoint, fmt::format("{}: the optimizer's state is incomplete{}; to start from the "
                                     "weights alone use --init-from instead of --resume",
                                     file, problems));
}

void gather_extras(Engine& engine, const ParamStore& params, CommThread& comm,
                   CheckpointContent* content) {
  for (const Engine::Extra& extra : engine.extras()) {
    if (!extra.per_rank) {
      if (content != nullptr) add_extra(*content, params, extra.view, extra_folder(extra, 0));
      continue;
    }
    Buffer memory(extra.view.device, extra.view.bytes());
    const View each = memory.view(0, extra.view.shape, extra.view.dtype);
    for (int r = 0; r < comm.size(); ++r) {
      if (r == comm.rank()) copy_now(each, extra.view);
      comm.broadcast(each, r, {}, "gather state", 0).wait();
      if (content != nullptr) add_extra(*content, params, each, extra_folder(extra, r));
    }
  }
}

std::vector<std::string> restore_extras(Engine& engine, const ParamStore& params, CommThread& comm,
                                        const CheckpointContent* content, bool same_ranks) {
  std::vector<std::string> missing;
  for (const Engine::Extra& extra : engine.extras()) {
    Buffer memory(extra.view.device, extra.view.bytes());
    const View each = memory.view(0, extra.view.shape, extra.view.dtype);
    const int ranks = extra.per_rank ? comm.size() : 1;
    for (int r = 0; r < ranks; ++r) {
      std::int64_t found = 0;
      if (content != nullptr && (same_ranks || !extra.per_rank))
        found = load_extra(*content, params, each, extra_folder(extra, r)) ? 1 : 0;
      comm.broadcast(host_view(&found), 0, {}, "restore state", 0).wait();
      if (content != nullptr && found == 0 && r == 0)
        missing.push_back(fmt::format("{} starts anew: the checkpoint {}", extra.name,
                                      same_ranks ? "does not hold it" : "is of another number of ranks"));
      if (found == 0) continue;
      comm.broadcast(each, 0, {}, "restore state", 0).wait();
      if (!extra.per_rank || r == comm.rank()) copy_now(extra.view, each);
    }
  }
  return missing;
}

Saver::Saver(CheckpointFolder folder, StorageThread& storage, int keep, Tracer* tracer)
    : folder_(std::move(folder)), storage_(storage), keep_(keep), tracer_(tracer) {}

Saver::~Saver() {
  if (running_.valid()) running_.wait();
}

double Saver::queue(CheckpointContent content, std::filesystem::path file, std::int64_t step,
                    bool prune) {
  const std::int64_t begin = now_ns();
  finish();
  const double waited = static_cast<double>(now_ns() - begin) * 1e-9;
  last_file_ = prune ? file.string() : last_file_;
  running_ = storage_.save([this, file = std::move(file), step, prune,
                            shared = std::make_shared<CheckpointContent>(std::move(content))] {
    const std::int64_t save_begin = now_ns();
    write_checkpoint(file, *shared);
    if (prune) folder_.prune(keep_);
    if (tracer_ != nullptr)
      tracer_->add({"save checkpoint", save_begin, now_ns(), step, TraceRow::saving});
  });
  return waited;
}

double Saver::save(CheckpointContent content, std::int64_t step) {
  return queue(std::move(content), folder_.file_of(step), step, true);
}

double Saver::save_best(CheckpointContent content, std::int64_t step) {
  return queue(std::move(content), folder_.file_of(step).parent_path() / "best.h5", step, false);
}

void Saver::poll() {
  if (running_.valid() && running_.wait_for(std::chrono::seconds(0)) == std::future_status::ready)
    running_.get();
}

void Saver::finish() {
  if (running_.valid()) running_.get();
}

}  // namespace sidestep
