#include "comm/reducer.h"

#include <utility>

#include "core/base/error.h"

namespace sidestep {

void Reducer::Countdown::reset(const BucketPlan& plan) {
  pending.resize(plan.buckets.size());
  last.resize(plan.buckets.size());
  for (std::size_t b = 0; b < pending.size(); ++b) {
    pending[b] = static_cast<int>(plan.buckets[b].params.size());
    last[b] = Event();
  }
}

void Reducer::Countdown::count(std::size_t bucket, const Event& event) {
  check(pending[bucket] > 0, "a parameter was reported twice in a round");
  --pending[bucket];
  Event& latest = last[bucket];
  if (latest.timeline() == nullptr) {
    latest = event;
    return;
  }
  check(event.timeline() == latest.timeline(), "the reports of a round come from one stream");
  if (event.value() > latest.value()) latest = event;
}

Reducer::Reducer(const BucketPlan& plan, bool hold, Launch launch)
    : plan_(plan), hold_(hold), launch_(std::move(launch)) {
  begin();
}

void Reducer::begin() {
  final_.reset(plan_);
  read_.reset(plan_);
  next_ = 0;
}

void Reducer::grad_ready(ParamId p, const Event& event) {
  final_.count(static_cast<std::size_t>(plan_.bucket_of[static_cast<std::size_t>(p)]), event);
  if (!hold_) launch_full();
}

void Reducer::last_read(ParamId p, const Event& event) {
  read_.count(static_cast<std::size_t>(plan_.bucket_of[static_cast<std::size_t>(p)]), event);
}

void Reducer::flush(const Event& all) {
  for (; next_ < plan_.buckets.size(); ++next_) {
    const bool full = final_.pending[next_] == 0 && !hold_;
    launch_(static_cast<int>(next_), full ? final_.last[next_] : all);
  }
  for (std::size_t b = 0; b < read_.last.size(); ++b)
    if (read_.pending[b] > 0) read_.last[b] = all;
}

void Reducer::launch_full() {
  for (; next_ < plan_.buckets.size() && final_.pending[next_] == 0; ++next_)
    launch_(static_cast<int>(next_), final_.last[next_]);
}

}  // namespace sidestep
