#include "tests/comm/quorum_rank.h"

#include <chrono>
#include <thread>

#include "core/base/rng.h"
#include "tests/comm/ranks.h"
#include "tests/comm/stores.h"

namespace sidestep::testing {
namespace {

template <class T>
View scalar_view(T& x) {
  return {reinterpret_cast<std::byte*>(&x), Shape{1}, dtype_of<T>, Device{}};
}

std::uint64_t number(std::int64_t x) { return static_cast<std::uint64_t>(x); }

float uniform(const char* what, int rank, std::int64_t round, std::int64_t element) {
  const std::uint64_t key = rng_key(7, what, number(round), number(rank));
  return random_uniform(key, number(element));
}

}  // namespace

std::int64_t QuorumRank::share(const QuorumSettings& settings, int rank, std::int64_t round) {
  if (settings.whole_shares) return kShare;
  return static_cast<std::int64_t>(
      random_below(rng_key(5, "share", number(round), number(rank)), 0, kShare + 1));
}

float QuorumRank::whole_gradient(int rank, std::int64_t round, std::int64_t sample,
                                 std::int64_t i) {
  const std::uint64_t key = rng_key(9, "whole", number(round), number(rank));
  return static_cast<float>(random_below(key, number(sample * kLayers * kWidth + i), 9)) - 4;
}

QuorumRank::QuorumRank(std::unique_ptr<Communicator> comm, const QuorumSettings& settings)
    : settings_(settings),
      store_(store_of(std::vector<std::int64_t>(kLayers, kWidth))),
      optimizer_(make_optimizer(settings.optimizer, store_)),
      comm_(std::move(comm), {.control = true}),
      rank_(comm_.rank()),
      ranks_(comm_.size()),
      compute_(Stream::create(Device{}, "compute")),
      update_(Stream::create(Device{}, "update")),
      residual_(kShare * kLayers * kWidth) {
  for (ParamId p = 0; p < kLayers; ++p) {
    float* const w = store_.value(p).as<float>();
    for (std::int64_t i = 0; i < kWidth; ++i) w[i] = 0.5f + uniform("init", 0, p, i);
  }
}

QuorumRank::~QuorumRank() = default;

RoundInfo QuorumRank::plan(std::int64_t round) const {
  RoundInfo info{.lr = settings_.lr, .update_number = round, .rule = settings_.rule};
  for (int r = 0; r < ranks_; ++r) info.nominal += share(settings_, r, round);
  info.flush = round % settings_.flush_every == 0;
  info.last = round == settings_.rounds;
  return info;
}

QuorumRecord QuorumRank::run() {
  QuorumEngine::Options options{.buckets = {.bytes = 128, .first_bytes = 64}};
  options.clip_norm = settings_.clip_norm;
  options.micro_batches = settings_.micro_batches;
  options.early = settings_.early;
  options.batch = kShare * ranks_;
  options.replay = settings_.replay;
  options.plan = [this](std::int64_t round) { return plan(round); };
  options.journal = [this](const JournalLine& line) { journal_.push_back(line); };
  options.applied = [this](std::int64_t round, const View& master) {
    masters_.push_back(copy_of(master));
    if (settings_.applied) settings_.applied(rank_, round, master);
  };
  quorum_ = std::make_unique<QuorumEngine>(store_, *optimizer_, comm_, compute_, update_, options);
  quorum_->start(1);
  QuorumRecord record;
  while (const std::int64_t round = quorum_->claim()) {
    record.claimed.push_back(round);
    record.produced += share(settings_, rank_, round);
    work(*quorum_, round);
    if (quorum_->info().flush) {
      collect(*quorum_, round, record);
      quorum_->quiesced().wait();
      record.weights = copy_of(store_.values());
    }
  }
  record.counts = quorum_->counts();
  record.journal = journal_;
  record.masters = masters_;
  return record;
}

QuorumRecord QuorumRank::run_bsp() {
  RoundEngine::Options options{.buckets = {.bytes = 128, .first_bytes = 64}};
  options.clip_norm = settings_.clip_norm;
  options.micro_batches = settings_.micro_batches;
  bsp_ = std::make_unique<RoundEngine>(store_, *optimizer_, comm_, compute_, update_, options);
  QuorumRecord record;
  for (std::int64_t round = 1; round <= settings_.rounds; ++round) {
    work(*bsp_, round);
    collect(*bsp_, round, record);
    record.masters.push_back(copy_of(store_.values()));
  }
  record.weights = copy_of(store_.values());
  return record;
}

void QuorumRank::collect(Engine& engine, std::int64_t up_to, QuorumRecord& record) {
  for (auto step = static_cast<std::int64_t>(record.results.size()) + 1; step <= up_to; ++step) {
    record.results.push_back(engine.result(step));
    const auto entries = record.results.back().entries;
    record.entries.emplace_back(entries.begin(), entries.end());
  }
}

std::vector<float> QuorumRank::copy_of(const View& flat) const {
  return {flat.as<float>(), flat.as<float>() + flat.numel()};
}

void QuorumRank::work(Engine& engine, std::int64_t round) {
  const std::int64_t samples = share(settings_, rank_, round);
  RoundStart start;
  start.step = start.update_number = round;
  start.lr = settings_.lr;
  start.stop = settings_.stop && settings_.stop(rank_, round);
  start.own.compute_units = 1;
  engine.begin(start);
  const std::int64_t half = settings_.micro_batches ? samples / 2 : 0;
  if (samples == 0) {
    engine.cut_short(false);
  } else if (half > 0) {
    const bool foreseen = round % 3 != 0;
    micro_batch(engine, round, 0, half, false);
    micro_batch(engine, round, half, samples - half, foreseen);
    if (!foreseen) engine.cut_short(true);
  } else {
    micro_batch(engine, round, 0, samples, true);
  }
  engine.end_step();
  engine.finish();
}

void QuorumRank::sleep(std::int64_t round, int place) const {
  std::int64_t us = 0;
  if (settings_.max_sleep_us > 0) {
    const std::uint64_t key = rng_key(settings_.seed, "sleep", number(round), number(rank_));
    us = static_cast<std::int64_t>(
        random_below(key, number(place), number(settings_.max_sleep_us) + 1));
  }
  if (rank_ == settings_.slow_rank) us += settings_.slow_us;
  if (us > 0) std::this_thread::sleep_for(std::chrono::microseconds(us));
}

void QuorumRank::micro_batch(Engine& engine, std::int64_t round, std::int64_t first,
                             std::int64_t samples, bool last) {
  for (ParamId p = 0; p < kLayers; ++p) compute_.wait(engine.gate().ready(p));
  forward(round, first, samples);
  engine.add(scalar_view(loss_), scalar_view(weight_), scalar_view(correct_), samples,
             rng_key(3, "digest", number(round), number(rank_)));
  backward(round, first, samples, engine.sink(last));
  if (!last) engine.accumulate();
}

void QuorumRank::forward(std::int64_t round, std::int64_t first, std::int64_t samples) {
  compute_.host([this, round, first, samples] {
    sleep(round, 0);
    loss_ = 0;
    weight_ = samples;
    correct_ = samples / 2;
    for (std::int64_t s = 0; s < samples; ++s) {
      for (int l = 0; l < kLayers; ++l) {
        const float* const w = store_.value(l).as<float>();
        for (std::int64_t i = 0; i < kWidth; ++i) {
          const std::int64_t at = ((first + s) * kLayers + l) * kWidth + i;
          float& residual = residual_[static_cast<std::size_t>((s * kLayers + l) * kWidth + i)];
          residual = w[i] * uniform("x", rank_, round, at) - uniform("t", rank_, round, at);
          loss_ += 0.5 * static_cast<double>(residual) * static_cast<double>(residual);
        }
      }
    }
    if (settings_.in_pass) settings_.in_pass(rank_, round);
  });
}

void QuorumRank::backward(std::int64_t round, std::int64_t first, std::int64_t samples,
                          GradSink& sink) {
  for (ParamId l = 0; l < kLayers; ++l) {
    compute_.host([this, round, first, samples, l] {
      sleep(round, 1 + static_cast<int>(l));
      float* const dw = store_.grad(l).as<float>();
      const float factor = settings_.factor ? settings_.factor(rank_, round) : 1;
      for (std::int64_t i = 0; i < kWidth; ++i) {
        dw[i] = 0;
        for (std::int64_t s = 0; s < samples; ++s) {
          const std::int64_t at = ((first + s) * kLayers + l) * kWidth + i;
          const float residual =
              residual_[static_cast<std::size_t>((s * kLayers + l) * kWidth + i)];
          const float gradient = settings_.whole_gradients
                                     ? whole_gradient(rank_, round, first + s, l * kWidth + i)
                                     : residual * uniform("x", rank_, round, at);
          dw[i] += factor * gradient;
        }
      }
    });
    sink.grad_ready(l, compute_.record());
    sink.last_read(l, compute_.record());
  }
}

std::vector<QuorumRecord> run_quorum(int ranks, const QuorumSettings& settings, int max_delay_us,
                                     bool bsp) {
  std::vector<QuorumRecord> records(static_cast<std::size_t>(ranks));
  run_ranks(ranks,
            [&](auto comm) {
              const auto r = static_cast<std::size_t>(comm->rank());
              QuorumRank rank(std::move(comm), settings);
              records[r] = bsp ? rank.run_bsp() : rank.run();
            },
            {.max_delay_us = max_delay_us, .seed = settings.seed});
  return records;
}

}  // namespace sidestep::testing
