#include "comm/outer_rule.h"

namespace sidestep {

View slice(const View& flat, std::int64_t begin, std::int64_t end) {
  return {flat.data + static_cast<std::size_t>(begin) * size_of(flat.dtype), Shape{end - begin},
          flat.dtype, flat.device};
}

OuterUpdate::OuterUpdate(const OuterRule& rule, const ParamStore& store)
    : rule_(rule), store_(store) {
  if (rule.momentum != 0) memory_ = Buffer(store.device(), store.values().bytes());
}

void OuterUpdate::set(MeanScalars& scalars, double total, double local_lr) const {
  const bool anybody = total > 0;
  // The buffer of SlowMo holds changes per unit of the local rate. At rate 0 there is no change.
  const double unit = rule_.by_lr ? local_lr : 1;
  scalars.inverse = anybody ? static_cast<float>(1 / total) : 0;
  scalars.lr = anybody ? static_cast<float>(rule_.lr) : 0;
  scalars.momentum = anybody ? static_cast<float>(rule_.momentum) : 1;
  scalars.into = unit > 0 ? static_cast<float>(1 / unit) : 0;
  scalars.out_of = static_cast<float>(unit);
}

void OuterUpdate::enqueue(Stream& stream, std::int64_t begin, std::int64_t end, const View& before,
                          const View& sum, const MeanScalars* scalars) {
  const View values = slice(store_.values(), begin, end);
  const View from = slice(before, begin, end), change = slice(sum, begin, end);
  if (!has_momentum()) return outer_step(stream, values, from, change, scalars);
  outer_momentum_step(stream, values, from, slice(momentum(), begin, end), change, rule_.nesterov,
                      scalars);
}

View OuterUpdate::momentum() const {
  return memory_.view(0, store_.values().shape, store_.values().dtype);
}

}  // namespace sidestep
