#include "tests/comm/local_rank.h"

#include <chrono>
#include <thread>

#include "core/base/rng.h"
#include "tests/comm/stores.h"

namespace sidestep::testing {
namespace {

constexpr std::int64_t kMaxSamples = 64;

template <class T>
View scalar_view(T& x) {
  return {reinterpret_cast<std::byte*>(&x), Shape{1}, dtype_of<T>, Device{}};
}

/// Parameter of a layer: flat order is the order in which gradients become ready.
ParamId param_of(int layer) { return kLocalLayers - 1 - layer; }

std::uint64_t element(std::int64_t sample, std::size_t i) {
  return static_cast<std::uint64_t>(sample) * kLocalWeights + i;
}

}  // namespace

float local_weight(std::size_t i) { return 0.75f + 0.5f * random_uniform(rng_key(1, "w"), i); }
float local_input(std::int64_t sample, std::size_t i) {
  return 0.5f + random_uniform(rng_key(2, "x"), element(sample, i));
}
float local_target(std::int64_t sample, std::size_t i) {
  return 2 * random_uniform(rng_key(3, "t"), element(sample, i));
}

LocalRank::LocalRank(std::unique_ptr<Communicator> comm, const LocalOptions& options,
                     const Make& make)
    : options_(options),
      lr_(options.lr),
      store_(store_of(std::vector<std::int64_t>(kLocalLayers, kLocalWidth))),
      optimizer_(make_optimizer(options.optimizer, store_)),
      input_(kMaxSamples * kLocalWeights),
      residual_(kMaxSamples * kLocalWeights),
      comm_(std::move(comm), CommThread::Options{}),
      compute_(Stream::create(Device{}, "compute", options.mode)),
      update_stream_(Stream::create(Device{}, "update", options.mode)) {
  for (std::size_t i = 0; i < kLocalWeights; ++i) {
    const auto layer = static_cast<int>(i) / static_cast<int>(kLocalWidth);
    store_.value(param_of(layer)).as<float>()[i % kLocalWidth] = local_weight(i);
  }
  engine_ =
      make(store_, *optimizer_, comm_, compute_, options.one_stream ? compute_ : update_stream_);
}

LocalRank::~LocalRank() = default;

void LocalRank::begin(std::int64_t step) {
  engine_->begin(
      {.step = step, .update_number = step, .lr = lr_, .nominal = 0, .stop = false, .own = {}});
}

void LocalRank::next(std::int64_t step) { engine_->begin_local_step(step, step, lr_); }

void LocalRank::forward(std::int64_t first, std::int64_t samples) {
  compute_.host([this] { loss_ = 0; });
  for (int layer = 0; layer < kLocalLayers; ++layer) {
    compute_.wait(engine_->gate().ready(param_of(layer)));
    compute_.host([this, layer, first, samples] {
      const float* const w = store_.value(param_of(layer)).as<float>();
      for (std::int64_t s = 0; s < samples; ++s) {
        for (std::size_t j = 0; j < kLocalWidth; ++j) {
          const std::size_t i = static_cast<std::size_t>(layer) * kLocalWidth + j;
          const std::size_t at = static_cast<std::size_t>(s) * kLocalWeights + i;
          input_[at] = local_input(first + s, i);
          residual_[at] = w[j] * input_[at] - local_target(first + s, i);
          loss_ += 0.5 * static_cast<double>(residual_[at]) * static_cast<double>(residual_[at]);
        }
      }
    });
  }
  compute_.host([this, samples] {
    weight_ = samples;
    correct_ = samples / 2;
  });
}

void LocalRank::backward(std::int64_t samples, float factor, GradSink& sink) {
  for (int layer = kLocalLayers - 1; layer >= 0; --layer) {
    const ParamId p = param_of(layer);
    compute_.host([this, layer, p, samples, factor, pass = ++passes_] {
      if (options_.max_delay_us > 0) {
        const std::uint64_t key =
            rng_key(options_.delay_seed, "delay", pass, static_cast<std::uint64_t>(comm_.rank()));
        std::this_thread::sleep_for(std::chrono::microseconds(
            random_below(key, 0, static_cast<std::uint64_t>(options_.max_delay_us))));
      }
      float* const dw = store_.grad(p).as<float>();
      for (std::size_t j = 0; j < kLocalWidth; ++j) {
        dw[j] = 0;
        for (std::int64_t s = 0; s < samples; ++s) {
          const std::size_t at = static_cast<std::size_t>(s) * kLocalWeights +
                                 static_cast<std::size_t>(layer) * kLocalWidth + j;
          dw[j] += factor * residual_[at] * input_[at];
        }
      }
    });
    sink.last_read(p, compute_.record());
    sink.grad_ready(p, compute_.record());
  }
}

void LocalRank::micro_batch(std::int64_t first, std::int64_t samples, bool last, float factor) {
  forward(first, samples);
  engine_->add(scalar_view(loss_), scalar_view(weight_), scalar_view(correct_), samples,
               static_cast<std::uint64_t>(first));
  backward(samples, factor, engine_->sink(last));
  if (!last) engine_->accumulate();
}

void LocalRank::step(std::int64_t first, std::int64_t samples, float factor) {
  if (samples > 0) {
    micro_batch(first, samples, true, factor);
  } else {
    engine_->cut_short(false);
  }
  engine_->end_step();
}

std::vector<float> LocalRank::layers(const View& flat) {
  engine_->quiesced().wait();
  std::vector<float> all;
  for (int layer = 0; layer < kLocalLayers; ++layer) {
    const float* const values = flat.as<float>() + store_.offset(param_of(layer));
    all.insert(all.end(), values, values + kLocalWidth);
  }
  return all;
}

}  // namespace sidestep::testing
