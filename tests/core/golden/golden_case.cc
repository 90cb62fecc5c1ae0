#include "tests/core/golden/golden_case.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/base/error.h"

namespace sidestep::golden {
namespace {

/// The finaliser of MurmurHash3 for 32 bits.
std::uint32_t mix(std::int64_t value) {
  auto h = static_cast<std::uint32_t>(value);
  h = (h ^ (h >> 16)) * 0x85ebca6bu;
  h = (h ^ (h >> 13)) * 0xc2b2ae35u;
  return h ^ (h >> 16);
}

float pixel(std::int64_t sample, std::int64_t label, std::int64_t pixels, std::int64_t k) {
  const std::uint32_t pattern = mix(1000003 + label * pixels + k) >> 24;
  const std::uint32_t noise = mix(2000003 + sample * pixels + k) >> 24;
  return (static_cast<float>(3 * pattern + noise) - 510.0f) / 256.0f;
}

float weight(std::int64_t parameter, std::int64_t i, std::int64_t fan_in) {
  const double u = static_cast<double>(mix((parameter << 20) + i) >> 8) / 16777216.0;
  return static_cast<float>((2 * u - 1) * (1 / std::sqrt(static_cast<double>(fan_in))));
}

/// A run reports gradients to somebody; here nobody overlaps anything with backward.
struct NoSink final : GradSink {
  void grad_ready(ParamId, const Event&) override {}
  void last_read(ParamId, const Event&) override {}
};

OptimizerConfig optimizer_config(const std::string& name, const nlohmann::json& curve) {
  OptimizerConfig config{.name = name, .weight_decay = curve.at("weight_decay")};
  if (name == "sgd") {
    config.momentum = curve.at("momentum");
  } else {
    config.beta1 = curve.at("beta1");
    config.beta2 = curve.at("beta2");
    config.epsilon = curve.at("epsilon");
  }
  return config;
}

}  // namespace

Golden load(const std::string& model, const std::string& optimizer) {
  std::ifstream file(std::string(SIDESTEP_GOLDEN_DIR) + "/" + model + ".json");
  const auto json = nlohmann::json::parse(file);
  const nlohmann::json& curve = json.at("curves").at(optimizer);
  Golden golden;
  golden.model.name = json.at("model");
  golden.model.height = golden.model.width = json.at("side");
  golden.model.classes = json.at("classes");
  golden.model.hidden = json.at("hidden").get<std::vector<std::int64_t>>();
  golden.optimizer = optimizer_config(optimizer, curve);
  golden.batch = json.at("batch");
  golden.samples = json.at("samples");
  golden.lr = curve.at("lr");
  golden.spread = curve.at("spread");
  golden.first_loss = json.at("first_loss");
  golden.losses = curve.at("losses").get<std::vector<double>>();
  for (const nlohmann::json& p : json.at("parameters")) {
    golden.parameters.push_back({p.at("name"), p.at("shape").get<std::vector<std::int64_t>>(),
                                 p.at("fan_in"), p.at("gradient_norm"),
                                 p.at("gradient").get<std::vector<double>>()});
  }
  return golden;
}

Training::Training(const Golden& golden, const OptimizerConfig& optimizer, double lr)
    : golden_(golden),
      lr_(lr),
      executor_(make_model(golden.model),
                {.device = {}, .training = true, .batches = {golden.batch}, .tracer = nullptr}),
      optimizer_(make_optimizer(optimizer, executor_.params())),
      stream_(Stream::create({}, "golden", StreamMode::direct)) {
  set_weights();
}

void Training::set_weights() {
  ParamStore& store = executor_.params();
  for (ParamId p = 0; p < store.count(); ++p) {
    const auto found = std::ranges::find(golden_.parameters, store.spec(p).name, &Parameter::name);
    check(found != golden_.parameters.end(), "not in the file: " + store.spec(p).name);
    const std::int64_t number = found - golden_.parameters.begin();
    const View value = store.value(p);
    for (std::int64_t i = 0; i < value.numel(); ++i) {
      value.as<float>()[i] = weight(number, i, found->fan_in);
    }
  }
}

void Training::set_batch() {
  const View x = executor_.input(golden_.batch, "x");
  const View y = executor_.input(golden_.batch, "y");
  const std::int64_t pixels = x.shape.row_numel();
  for (std::int64_t j = 0; j < golden_.batch; ++j) {
    const std::int64_t sample = (step_ * golden_.batch + j) % golden_.samples;
    const std::int64_t label = mix(sample) % golden_.model.classes;
    y.as<std::int32_t>()[j] = static_cast<std::int32_t>(label);
    for (std::int64_t k = 0; k < pixels; ++k) {
      x.as<float>()[j * pixels + k] = pixel(sample, label, pixels, k);
    }
  }
}

double Training::compute() {
  NoSink sink;
  set_batch();
  executor_.forward(stream_, golden_.batch, nullptr, step_);
  executor_.backward(stream_, golden_.batch, sink, step_);
  stream_.synchronize();
  ++step_;
  return executor_.loss(golden_.batch).as<double>()[0] /
         static_cast<double>(executor_.weight(golden_.batch).as<std::int64_t>()[0]);
}

void Training::update() {
  UpdateScalars scalars = optimizer_->scalars(lr_, step_);
  scalars.grad_scale = 1.0f / static_cast<float>(golden_.batch);
  optimizer_->update(stream_, executor_.params(), executor_.params().order(), &scalars);
  stream_.synchronize();
}

std::vector<double> train(Training& training, std::size_t steps) {
  std::vector<double> losses;
  while (losses.size() < steps) {
    losses.push_back(training.compute());
    training.update();
  }
  return losses;
}

double distance(const std::vector<double>& a, const std::vector<double>& b) {
  check(a.size() == b.size() && !a.empty(), "curves of equal length");
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    // A NaN must not pass as small.
    if (!(std::abs(a[i] - b[i]) <= largest)) largest = std::abs(a[i] - b[i]);
  }
  return largest;
}

}  // namespace sidestep::golden
