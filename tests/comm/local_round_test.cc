// How the local engine carries rounds out: micro-batches, order, results, failures, what is kept.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "comm/local_engine.h"
#include "core/base/error.h"
#include "tests/comm/local_runs.h"
#include "tests/harness/allocation_count.h"

namespace sidestep::testing {
namespace {

ModelRule elastic() {
  return {.elastic = true, .elastic_alpha = 0.3, .local_state = LocalState::keep};
}

// ---- micro-batches

TEST(LocalRound, MicroBatchesAddUpToTheStep) {
  enum class Mode { one, foreseen, cut };
  const auto run = [](Mode mode) {
    LocalEngine::Options options = with({});
    options.micro_batches = mode != Mode::one;
    LocalRank rank(std::move(make_thread_group(1)[0]), {}, local(options));
    for (std::int64_t step = 1; step <= 4; ++step) {
      rank.begin(step);
      if (mode == Mode::one) {
        rank.micro_batch(12 * step, 9);
      } else {
        for (std::int64_t k = 0; k < 3; ++k)
          rank.micro_batch(12 * step + 3 * k, 3, mode == Mode::foreseen && k == 2);
        if (mode == Mode::cut) rank.engine().cut_short(true);
      }
      rank.engine().end_step();
      rank.finish();
      EXPECT_EQ(rank.engine().result(step).samples, 9);
      EXPECT_EQ(rank.engine().result(step).flushed, mode == Mode::cut ? 1 : 0);
      EXPECT_EQ(rank.engine().result(step).entries[0].units, mode == Mode::one ? 1 : 3);
    }
    return rank.weights();
  };
  const Weights foreseen = run(Mode::foreseen);
  EXPECT_EQ(run(Mode::cut), foreseen);
  expect_near(run(Mode::one), foreseen);
}

// ---- order and time

TEST(LocalRound, DelaysAndStreamsChangeNoBit) {
  const Schedule schedule = every_step({5, 3, 0}, 2);
  const std::vector<ModelRule> rules = {{.outer = {.lr = 0.9, .momentum = 0.5, .nesterov = true}},
                                        {.local_state = LocalState::average},
                                        elastic()};
  for (const ModelRule& rule : rules) {
    const std::vector<Weights> expected = train_all(3, schedule, local(rule), momentum(0.5));
    for (std::uint64_t seed = 0; seed < 3; ++seed) {
      for (const bool one_stream : {false, true}) {
        LocalOptions options = momentum(0.5);
        options.one_stream = one_stream;
        options.max_delay_us = 400;
        options.delay_seed = seed;
        options.mode = seed == 2 ? StreamMode::direct : StreamMode::threaded;
        EXPECT_EQ(train_all(3, schedule, local(rule), options, {.max_delay_us = 500, .seed = seed}),
                  expected)
            << "seed " << seed;
      }
    }
  }
}

TEST(LocalRound, ReportsTheRound) {
  run_ranks(3, [](auto comm) {
    LocalRank rank(std::move(comm), momentum(0.5), local({.local_state = LocalState::average}));
    constexpr std::int64_t kSamples[] = {4, 0, 7};
    const std::int64_t samples = kSamples[rank.rank()];
    rank.begin(1);
    rank.step(100, samples);
    rank.next(2);
    rank.step(200, samples);
    rank.finish();
    const RoundResult result = rank.engine().result(2);
    EXPECT_EQ(result.step, 2);
    EXPECT_EQ(result.weight, 22);
    EXPECT_EQ(result.samples, 22);
    EXPECT_EQ(result.correct, 2 * (2 + 3));
    EXPECT_EQ(result.participants, 2);
    EXPECT_EQ(result.index_digest, 600u);
    EXPECT_GT(result.loss_sum, 0);
    EXPECT_TRUE(result.synced);
    EXPECT_EQ(result.bytes, 2 * static_cast<std::int64_t>(rank.store().values().bytes()));
    ASSERT_EQ(result.entries.size(), 3u);
    for (std::size_t r = 0; r < 3; ++r) {
      EXPECT_EQ(result.entries[r].samples, 2 * kSamples[r]);
      EXPECT_EQ(result.entries[r].units, kSamples[r] > 0 ? 2 : 0);
      EXPECT_EQ(result.entries[r].begun, 1);
    }
  });
}

TEST(LocalRound, NoSamplesAnywhereLeaveEverything) {
  for (const LocalState state : {LocalState::keep, LocalState::average}) {
    run_ranks(2, [&](auto comm) {
      const ModelRule rule{.outer = {.lr = 0.9, .momentum = 0.5}, .local_state = state};
      LocalRank rank(std::move(comm), momentum(0.5), local(rule));
      rank.begin(1);
      rank.step(0, 3);
      rank.finish();
      const Weights weights = rank.weights(), slot = rank.layers(rank.store().slot(0)),
                    outer = rank.layers(rank.engine().extras().back().view);
      rank.begin(2);
      rank.step(0, 0);
      rank.finish();
      EXPECT_EQ(rank.weights(), weights);
      EXPECT_EQ(rank.layers(rank.store().slot(0)), slot);
      EXPECT_EQ(rank.layers(rank.engine().extras().back().view), outer);
    });
  }
}

TEST(LocalRound, ARoundAllocatesNothing) {
  const ModelRule rule{.outer = {.lr = 0.9, .momentum = 0.5}, .local_state = LocalState::average};
  LocalEngine::Options options = with(rule);
  options.clip_norm = 1;
  options.micro_batches = true;
  LocalRank rank(std::move(make_thread_group(1)[0]), momentum(0.5), local(options));
  std::int64_t step = 0;
  const auto round = [&] {
    rank.begin(++step);
    rank.micro_batch(0, 4, false);
    rank.micro_batch(4, 4, true);
    rank.engine().end_step();
    rank.next(++step);
    rank.step(8, 8);
    rank.finish();
    rank.engine().result(step);
  };
  for (int i = 0; i < 6; ++i) round();
  const std::int64_t before = allocation_count();
  for (int i = 0; i < 10; ++i) round();
  EXPECT_EQ(allocation_count(), before);
}

// ---- failures

TEST(LocalRound, AGradientThatIsNotFiniteNamesStepAndRank) {
  const auto run = [] {
    run_ranks(2, [](auto comm) {
      LocalRank rank(std::move(comm), {}, local(ModelRule{}));
      rank.begin(1);
      rank.step(0, 3);
      rank.next(2);
      rank.step(3, 3, rank.rank() == 1 ? std::numeric_limits<float>::infinity() : 1);
      rank.finish();
      try {
        rank.engine().result(2);
        ADD_FAILURE() << "rank " << rank.rank() << " went on";
      } catch (const Error& e) {
        if (rank.rank() == 0) {
          EXPECT_EQ(e.code(), Exit::communication) << e.what();
          return;
        }
        EXPECT_EQ(e.code(), Exit::numbers) << e.what();
        EXPECT_THAT(e.what(), ::testing::HasSubstr("step 2: the gradient of rank 1 of w0, w1"));
        throw;
      }
    });
  };
  EXPECT_THROW(run(), Error);
}

TEST(LocalRound, AnErrorOnOneRankFreesThePeers) {
  const auto run = [] {
    run_ranks(2, [](auto comm) {
      LocalRank rank(std::move(comm), {}, local(ModelRule{}));
      rank.begin(1);
      rank.step(0, 3);
      if (rank.rank() == 1) throw Error(Exit::data, "planted");
      rank.finish();
      try {
        rank.engine().result(1);
        ADD_FAILURE() << "rank 0 went on alone";
      } catch (const Error& e) {
        EXPECT_EQ(e.code(), Exit::communication);
      }
    });
  };
  EXPECT_THROW(run(), Error);
}

// ---- what a checkpoint keeps

/// Host copies of what a checkpoint holds for one rank.
struct Saved {
  Weights values, slot;
  std::vector<std::pair<std::string, Weights>> extras;

  static Weights all(const View& view) {
    const float* const x = view.as<float>();
    return {x, x + view.numel()};
  }
  static void put(const View& view, const Weights& from) {
    std::memcpy(view.data, from.data(), view.bytes());
  }
  explicit Saved(LocalRank& rank) {
    rank.engine().quiesced().wait();
    rank.engine().show();
    values = all(rank.store().values());
    slot = all(rank.store().slot(0));
    for (const Engine::Extra& extra : rank.engine().extras())
      extras.emplace_back(extra.name, all(extra.view));
    rank.engine().hide();
  }
  void load(LocalRank& rank) const {
    put(rank.store().values(), values);
    put(rank.store().slot(0), slot);
    rank.engine().show();
    for (std::size_t i = 0; i < extras.size(); ++i) {
      ASSERT_EQ(extras[i].first, rank.engine().extras()[i].name);
      put(rank.engine().extras()[i].view, extras[i].second);
    }
    rank.engine().hide();
  }
};

TEST(LocalRound, GoesOnFromWhatWasSavedBitForBit) {
  const Schedule schedule = every_step({5, 3}, 2);
  for (const ModelRule& rule : {ModelRule{.outer = {.lr = 0.9, .momentum = 0.5, .nesterov = true}},
                                elastic(), ModelRule{.local_state = LocalState::keep}}) {
    run_ranks(2, [&](auto comm) {
      const auto rounds = [&](LocalRank& rank, int begin, int end) {
        std::int64_t step = 2 * begin;
        for (int round = begin; round < end; ++round)
          run_round(rank, schedule(rank.rank(), round), round, step);
      };
      std::unique_ptr<Saved> saved, expected;
      auto again = comm->duplicate();
      {
        LocalRank rank(std::move(comm), momentum(0.5), local(rule));
        rounds(rank, 0, 3);
        saved = std::make_unique<Saved>(rank);
        rounds(rank, 3, 6);
        expected = std::make_unique<Saved>(rank);
      }
      LocalRank rank(std::move(again), momentum(0.5), local(rule));
      saved->load(rank);
      rounds(rank, 3, 6);
      const Saved found(rank);
      EXPECT_EQ(found.values, expected->values);
      EXPECT_EQ(found.slot, expected->slot);
      EXPECT_EQ(found.extras, expected->extras);
    });
  }
}

TEST(LocalRound, NamesWhatIsKept) {
  const auto names = [](const ModelRule& rule) {
    LocalRank rank(std::move(make_thread_group(1)[0]), {}, local(rule));
    std::vector<std::string> all;
    for (const Engine::Extra& extra : rank.engine().extras())
      all.push_back(std::string(extra.per_rank ? "rank/" : "") + extra.name);
    return all;
  };
  EXPECT_THAT(names({}), ::testing::IsEmpty());
  EXPECT_THAT(names({.local_state = LocalState::keep}),
              ::testing::ElementsAre("rank/slot:momentum"));
  EXPECT_THAT(names({.outer = {.momentum = 0.5}}), ::testing::ElementsAre("outer_momentum"));
  EXPECT_THAT(names(elastic()), ::testing::ElementsAre("rank/slot:momentum", "rank/weights"));
}

}  // namespace
}  // namespace sidestep::testing
