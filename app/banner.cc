#include "app/banner.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "app/options.h"

namespace sidestep {
namespace {

/// "43 + 43 + 42", or "64 each"
std::string shares_text(const std::vector<std::int64_t>& shares) {
  if (shares.empty()) return "none";
  const auto [low, high] = std::minmax_element(shares.begin(), shares.end());
  if (*low == *high) return fmt::format("{} each", *low);
  const auto more = std::count(shares.begin(), shares.end(), *high);
  return fmt::format("{} on {} ranks, {} on {}", *high, more, *low,
                     static_cast<std::int64_t>(shares.size()) - more);
}

std::string rate_text(const BannerInfo& info) {
  const Settings& s = *info.settings;
  std::string text = fmt::format("base {:g}, scaling {}", s.lr, s.lr_scale);
  text +=
      s.lr_scale == "linear"
          ? fmt::format(" (base * {} / {})", s.batch, s.lr_base_batch)
          : " (not changed by ranks or batch; --lr-scale linear scales it with the global batch)";
  text += fmt::format(", in use {:g}, schedule {}", info.lr_in_use, s.schedule);
  return text + (s.warmup_epochs > 0 ? fmt::format(", warm-up over {:g} epochs", s.warmup_epochs)
                                     : ", no warm-up");
}

std::string optimizer_text(const Settings& s) {
  std::string text = s.optimizer == "sgd" ? fmt::format("sgd, momentum {:g}{}", s.momentum,
                                                        s.nesterov ? " (Nesterov)" : "")
                                          : fmt::format("{}, betas {:g} and {:g}, epsilon {:g}",
                                                        s.optimizer, s.beta1, s.beta2, s.epsilon);
  text += fmt::format(", weight decay {:g}", s.weight_decay);
  if (s.clip_norm > 0) {
    text += fmt::format(", clipped to norm {:g} (the update waits for the whole exchange)",
                        s.clip_norm);
  }
  return text;
}

/// When a rank that is not heard is late, stalls the job, is lost.
std::string limits_text(const Settings& s) {
  const auto seconds = [](Duration limit) {
    return limit.seconds > 0 ? fmt::format("after {:g} s", limit.seconds) : std::string("never");
  };
  return fmt::format("a silent rank is named {}, a stall {}, a lost rank ends the job {}",
                     seconds(s.late_limit), seconds(s.stall_limit), seconds(s.lost_limit));
}

std::int64_t ranks_of_fullest_host(const std::vector<RankInfo>& ranks) {
  std::map<std::string, std::int64_t> by_host;
  std::int64_t most = 0;
  for (const RankInfo& r : ranks) most = std::max(most, ++by_host[r.host]);
  return most;
}

}  // namespace

double scaled_lr(const Settings& s) {
  if (s.lr_scale != "linear") return s.lr;
  return s.lr * static_cast<double>(s.batch) / static_cast<double>(s.lr_base_batch);
}

std::string bytes_text(double bytes) {
  const char* unit = "B";
  for (const char* next : {"kB", "MB", "GB", "TB"}) {
    if (bytes < 1000) break;
    bytes /= 1000;
    unit = next;
  }
  return *unit == 'B' ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.1f} {}", bytes, unit);
}

std::string count_text(std::int64_t count) {
  std::string digits = std::to_string(count);
  for (auto i = static_cast<std::int64_t>(digits.size()) - 3; i > (count < 0 ? 1 : 0); i -= 3) {
    digits.insert(static_cast<std::size_t>(i), ",");
  }
  return digits;
}

std::vector<std::string> banner_lines(const BannerInfo& info) {
  const Settings& s = *info.settings;
  std::vector<std::string> lines;
  const auto add = [&](const char* name, const std::string& text) {
    lines.push_back(fmt::format("{:<10}{}", name, text));
  };
  add("model", fmt::format("{}, {} parameters, {} classes", s.model, count_text(info.parameters),
                           info.classes));
  add("data", fmt::format("{}; {} samples, {} steps an epoch, {} steps in all", info.train_data,
                          count_text(info.train_samples), info.steps_per_epoch, info.total_steps));
  add("test data", info.test_samples == 0 ? "none"
                                          : fmt::format("{}; {} samples", info.test_data,
                                                        count_text(info.test_samples)));
  add("ranks", fmt::format("{}, {} {} each, update thread {}", ranks_text(*info.ranks),
                           info.threads, info.threads == 1 ? "thread" : "threads",
                           info.own_update_thread ? "own" : "shared with compute"));
  add("batch", fmt::format("global {}, per rank {}", s.batch, shares_text(info.shares)));
  add("rate", rate_text(info));
  add("optimizer", optimizer_text(s));
  add("exchange", fmt::format("policy {}, overlap {}, {} {} of about {:g} MB", s.policy, s.overlap,
                              info.buckets, info.buckets == 1 ? "bucket" : "buckets", s.bucket_mb));
  const auto fullest = ranks_of_fullest_host(*info.ranks);
  const auto bytes = static_cast<double>(info.bytes_per_rank);
  add("memory", fmt::format("planned {} per rank, {} on the fullest host", bytes_text(bytes),
                            bytes_text(bytes * static_cast<double>(fullest))));
  add("limits", limits_text(s));
  add("seed", fmt::format("{} ({})", s.seed, to_string(origin_of(s, "seed"))));
  add("out", s.out);
  add("start", info.start);
  return lines;
}

}  // namespace sidestep
