#include "tests/comm/chain_rank.h"

#include <chrono>
#include <thread>

#include "core/base/rng.h"
#include "tests/comm/stores.h"

namespace sidestep::testing {
namespace {

View scalar_view(double& x) {
  return {reinterpret_cast<std::byte*>(&x), Shape{1}, DType::f64, Device{}};
}
View scalar_view(std::int64_t& x) {
  return {reinterpret_cast<std::byte*>(&x), Shape{1}, DType::i64, Device{}};
}

/// Passes on what backward reports, but for the last read of the first parameter that is ready.
struct Forgetful final : GradSink {
  explicit Forgetful(GradSink& to) : sink(to) {}
  void grad_ready(ParamId p, const Event& event) override { sink.grad_ready(p, event); }
  void last_read(ParamId p, const Event& event) override {
    sink.last_read(p, p == 0 ? Event() : event);
  }
  GradSink& sink;
};

/// Parameter of a layer: flat order is the order in which gradients become ready.
ParamId param_of(int layer) { return ChainRank::kLayers - 1 - layer; }

}  // namespace

ChainRank::ChainRank(std::unique_ptr<Communicator> comm, const ChainOptions& options)
    : options_(options),
      store_(store_of(std::vector<std::int64_t>(kLayers, kWidth))),
      optimizer_(make_optimizer(options.optimizer, store_)),
      h_((kLayers + 1) * kMaxSamples * kWidth),
      dh_(kMaxSamples * kWidth),
      target_(kMaxSamples * kWidth),
      comm_(std::move(comm), CommThread::Options{}),
      compute_(Stream::create(Device{}, "compute", options.mode)),
      update_stream_(Stream::create(Device{}, "update", options.mode)) {
  for (ParamId p = 0; p < kLayers; ++p) {
    float* w = store_.value(p).as<float>();
    const std::uint64_t key = rng_key(1, store_.spec(p).name);
    for (std::int64_t i = 0; i < kWidth; ++i)
      w[i] = 0.75f + 0.5f * random_uniform(key, static_cast<std::uint64_t>(i));
  }
  engine_ =
      std::make_unique<RoundEngine>(store_, *optimizer_, comm_, compute_,
                                    options.one_stream ? compute_ : update_stream_, options.engine);
}

ChainRank::~ChainRank() = default;

void ChainRank::forward(std::int64_t first, std::int64_t samples) {
  compute_.host([this, first, samples] {
    const std::uint64_t key = rng_key(2, "data");
    for (std::int64_t i = 0; i < samples * kWidth; ++i) {
      const auto element = static_cast<std::uint64_t>(first * kWidth + i);
      h(0)[i] = random_uniform(key, 2 * element);
      target_[static_cast<std::size_t>(i)] = random_uniform(key, 2 * element + 1);
    }
  });
  for (int l = 0; l < kLayers; ++l) {
    compute_.wait(engine_->ready(param_of(l)));
    compute_.host([this, l, samples] {
      const float* w = store_.value(param_of(l)).as<float>();
      for (std::int64_t i = 0; i < samples * kWidth; ++i) h(l + 1)[i] = h(l)[i] * w[i % kWidth];
    });
  }
  compute_.host([this, samples] {
    loss_ = 0;
    weight_ = samples;
    correct_ = samples / 2;
    for (std::int64_t i = 0; i < samples * kWidth; ++i) {
      float& dh = dh_[static_cast<std::size_t>(i)];
      dh = h(kLayers)[i] - target_[static_cast<std::size_t>(i)];
      loss_ += 0.5 * static_cast<double>(dh) * static_cast<double>(dh);
    }
  });
}

void ChainRank::delay_reader(std::int64_t step, int layer) {
  if (reader_hook_) reader_hook_(layer);
  if (options_.max_reader_delay_us == 0) return;
  const std::uint64_t key = rng_key(options_.delay_seed, "reader", static_cast<std::uint64_t>(step),
                                    static_cast<std::uint64_t>(comm_.rank()));
  std::this_thread::sleep_for(std::chrono::microseconds(
      random_below(key, static_cast<std::uint64_t>(layer),
                   static_cast<std::uint64_t>(options_.max_reader_delay_us))));
}

void ChainRank::backward(std::int64_t step, std::int64_t samples, bool last) {
  GradSink& engine_sink = engine_->sink(last);
  Forgetful forgetful(engine_sink);
  GradSink& sink = options_.forget_last_reads ? forgetful : engine_sink;
  for (int l = kLayers - 1; l >= 0; --l) {
    const ParamId p = param_of(l);
    compute_.host([this, l, p, samples] {
      float* dw = store_.grad(p).as<float>();
      for (std::int64_t j = 0; j < kWidth; ++j) dw[j] = 0;
      for (std::int64_t i = 0; i < samples * kWidth; ++i)
        dw[i % kWidth] += dh_[static_cast<std::size_t>(i)] * h(l)[i];
    });
    sink.grad_ready(p, compute_.record());
    compute_.host([this, step, l, p, samples] {
      delay_reader(step, l);
      const float* w = store_.value(p).as<float>();
      for (std::int64_t i = 0; i < samples * kWidth; ++i)
        dh_[static_cast<std::size_t>(i)] *= w[i % kWidth];
    });
    sink.last_read(p, compute_.record());
  }
}

void ChainRank::begin(std::int64_t step) {
  engine_->begin({.step = step, .update_number = step + 1, .lr = kLearningRate, .own = {}});
}

void ChainRank::train(std::int64_t step, std::int64_t first, std::int64_t samples) {
  begin(step);
  if (samples == 0) {
    engine_->cut_short(false);
  } else {
    forward(first, samples);
    engine_->add(scalar_view(loss_), scalar_view(weight_), scalar_view(correct_), samples, 0);
    backward(step, samples);
  }
  engine_->finish();
}

void ChainRank::train_parts(std::int64_t step, const std::vector<std::int64_t>& firsts,
                            std::int64_t part, bool foreseen) {
  begin(step);
  for (std::size_t k = 0; k < firsts.size(); ++k) {
    const bool last = foreseen && k + 1 == firsts.size();
    forward(firsts[k], part);
    engine_->add(scalar_view(loss_), scalar_view(weight_), scalar_view(correct_), part, 0);
    backward(step, part, last);
    if (!last) engine_->accumulate();
  }
  if (!foreseen) engine_->cut_short(!firsts.empty());
  engine_->finish();
}

void ChainRank::train_by_hand(std::int64_t step, std::int64_t weight,
                              std::function<void(int, float*)> fill, double loss) {
  begin(step);
  compute_.wait(engine_->quiesced());
  compute_.host([this, weight, loss] {
    loss_ = loss;
    weight_ = weight;
    correct_ = 0;
  });
  engine_->add(scalar_view(loss_), scalar_view(weight_), scalar_view(correct_), weight, 0);
  GradSink& sink = engine_->sink(true);
  for (int l = kLayers - 1; l >= 0; --l) {
    const ParamId p = param_of(l);
    compute_.host([this, l, p, fill] { fill(l, store_.grad(p).as<float>()); });
    sink.last_read(p, compute_.record());
    sink.grad_ready(p, compute_.record());
  }
  engine_->finish();
}

std::vector<float> ChainRank::weights() {
  engine_->quiesced().wait();
  std::vector<float> all;
  for (int l = 0; l < kLayers; ++l) {
    const float* w = store_.value(param_of(l)).as<float>();
    all.insert(all.end(), w, w + kWidth);
  }
  return all;
}

}  // namespace sidestep::testing
