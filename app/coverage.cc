#include "app/coverage.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "app/host_view.h"

namespace sidestep {

Coverage::Coverage(std::int64_t classes)
    : counts_(static_cast<std::size_t>(2 * classes)),
      round_(static_cast<std::size_t>(classes)),
      totals_(static_cast<std::size_t>(classes)) {}

void Coverage::count(std::span<const std::int32_t> labels, bool computed) {
  for (const std::int32_t label : labels) {
    const auto c = static_cast<std::size_t>(label);
    if (label < 0 || c >= round_.size()) continue;  // masked
    ++counts_[c];
    if (!computed) continue;
    ++counts_[round_.size() + c];
    ++round_[c];
  }
}

void Coverage::begin_round() { std::ranges::fill(round_, 0); }

void Coverage::write_off() {
  for (std::size_t c = 0; c < round_.size(); ++c) counts_[round_.size() + c] -= round_[c];
  begin_round();
}

std::string Coverage::review(CommThread& comm, std::int64_t step) {
  std::vector<std::int64_t> sum = counts_;
  std::ranges::fill(counts_, 0);
  comm.all_reduce(host_view(sum.data(), std::ssize(sum)), Reduce::sum, {}, "all-reduce coverage", step)
      .wait();
  std::vector<Class> now(totals_.size());
  for (std::size_t c = 0; c < now.size(); ++c) {
    now[c] = {sum[c], sum[now.size() + c]};
    totals_[c].handed_out += now[c].handed_out;
    totals_[c].applied += now[c].applied;
  }
  return starved_class(now);
}

std::string starved_class(std::span<const Coverage::Class> classes) {
  double handed_out = 0, applied = 0;
  for (const Coverage::Class& c : classes) {
    handed_out += static_cast<double>(c.handed_out);
    applied += static_cast<double>(c.applied);
  }
  std::string text;
  double worst = 0;
  for (std::size_t c = 0; c < classes.size(); ++c) {
    const auto due = static_cast<double>(classes[c].handed_out) * applied / std::max(handed_out, 1.0);
    const auto got = static_cast<double>(classes[c].applied);
    if (due <= 0) continue;
    const double departure = 1 - got / due;
    // What is left out varies by chance as a binomial count does.
    const double left = std::max(1 - applied / std::max(handed_out, 1.0), 0.0);
    if (departure <= std::max(Coverage::kTolerance, 4 * std::sqrt(left / due)) || departure <= worst)
      continue;
    worst = departure;
    text = fmt::format("class {} got {:.1f} % of the samples that were applied in time, its share is "
                       "{:.1f} %: slow samples may be of this class; they are served before the epoch "
                       "ends, but late (balance leaves nothing out)",
                       c, 100 * got / applied, 100 * static_cast<double>(classes[c].handed_out) / handed_out);
  }
  return text;
}

}  // namespace sidestep
