// Makes this rank's steps take longer on purpose: delays of --inject, compute times of --emulate-step
// and transfers of --emulate-link. Built once; the main thread enqueues, the loader and the comm
// thread ask for their own delays.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "app/settings.h"
#include "comm/injector.h"
#include "comm/round_header.h"
#include "core/device/stream.h"
#include "io/prefetch.h"

namespace sidestep {

class Emulation {
 public:
  /// `units`: micro-batches of a usual step. Exit::settings for an unknown scenario.
  Emulation(const Settings& settings, int rank, int ranks, std::int64_t total_steps, int units);

  bool active() const { return emulated_ns_ > 0 || injector_.active(); }
  /// Enqueued before a micro-batch's forward, and between its forward and backward.
  void begin_unit(Stream& compute);
  void pad(Stream& compute, std::int64_t step, int unit, const LoadedBatch& batch);
  /// Main thread, before a step's work is enqueued: stops or kills this process if that is its turn, or
  /// was at a step that this rank has passed over (quorum family).
  void before_step(std::int64_t step);
  /// Loader thread, before a step's first micro-batch.
  void delay_loader(std::int64_t step) const;
  /// Comm thread, before a collective starts. Links are slow on purpose only after the first rounds, from
  /// which the detector learns the usual time of a transfer.
  void delay_transfer(std::size_t bytes, std::int64_t step) const;
  /// The clean step time, where it is not emulated, is the median compute time of the first steps over
  /// all ranks; no delay acts before it is known.
  void observe(std::span<const RankEntry> entries);
  /// Nanoseconds; 0 while not known.
  std::int64_t clean_step_ns() const { return clean_step_ns_.load(); }
  /// Steps of a usual round, each with delays of its own. Under window every micro-batch is a step.
  int round_steps() const { return round_steps_; }
  const Injector& injector() const { return injector_; }

 private:
  static constexpr int kCalibrated = 20;  ///< rounds

  Injector injector_;
  int rank_;
  int units_;
  std::int64_t emulated_ns_;
  double link_ns_per_byte_;
  int round_steps_;
  std::atomic<std::int64_t> clean_step_ns_{0};
  std::int64_t unit_begin_ns_ = 0;  ///< the compute stream's
  std::vector<std::int64_t> measured_;
  int observed_ = 0;
  std::atomic<std::int64_t> rounds_{0};  ///< completed by this process
  std::int64_t last_step_ = 0;  ///< that before_step() was called for; 0: none
};

}  // namespace sidestep
