#include "comm/model_exchange.h"

#include <fmt/format.h>

#include <algorithm>

#include "comm/update_numbers.h"
#include "core/base/error.h"
#include "core/optim/norm.h"

namespace sidestep {

ModelExchange::ModelExchange(ParamStore& store, CommThread& comm, Stream& update,
                             const ModelRule& rule, const BucketSizes& sizes)
    : store_(store),
      comm_(comm),
      update_(update),
      rule_(rule),
      plan_(plan_buckets(store, sizes)),
      outer_(rule.elastic ? OuterRule{} : rule.outer, store),
      common_(store.device(), store.values().bytes()),
      reduced_(plan_.buckets.size()) {
  for (std::size_t b = 0; b < plan_.buckets.size(); ++b)
    span_names_.push_back(fmt::format("all-reduce model bucket {}", b));
}

void ModelExchange::begin() {
  if (begun_) return;
  begun_ = true;
  copy(update_, common(), store_.values());
  update_.record().wait();
}

void ModelExchange::enqueue(Round& round, Numbers& numbers, std::span<Event> updated) {
  const std::size_t buckets = plan_.buckets.size();
  update_.host([this, n = &numbers] {
    n->scalars.own = rule_.weighted ? static_cast<float>(n->own_weight) : n->own_weight > 0;
  });
  for (std::size_t b = 0; b < buckets; ++b) {
    contribute(b, numbers);
    send(b, round.step);
  }
  wait_for(round.header_in);
  wait_for(round.loss_in);
  update_.host([this, r = &round, n = &numbers] { settle(*r, *n); });
  for (std::size_t b = 0; b < buckets; ++b) {
    apply(round, b, numbers);
    updated[b] = update_.record();
  }
  if (rule_.local_state != LocalState::average || store_.slots() == 0) return;
  for (int slot = 0; slot < store_.slots(); ++slot) average_slot(slot, round.step, numbers);
  // Gradients, which the next backward writes, are in use until here.
  std::fill(updated.begin(), updated.end(), update_.record());
}

/// Leaves what is sent in the store's gradients.
void ModelExchange::contribute(std::size_t bucket, const Numbers& numbers) {
  const View sent = part(store_.grads(), bucket), values = part(store_.values(), bucket),
             before = part(common(), bucket);
  if (rule_.elastic) {
    elastic_pull(update_, sent, values, before, static_cast<float>(rule_.elastic_alpha));
  } else {
    weighted_change(update_, sent, before, values, &numbers.scalars);
  }
}

void ModelExchange::send(std::size_t bucket, std::int64_t step) {
  reduced_[bucket] = comm_.all_reduce(part(store_.grads(), bucket), Reduce::sum, update_.record(),
                                      span_names_[bucket].c_str(), step);
}

/// The round's header is in: whose changes make the mean.
void ModelExchange::settle(const Round& round, Numbers& numbers) const {
  check_finite_loss(*round.loss, round.step);
  const std::int64_t total = rule_.weighted ? round.header->weight : round.header->participants;
  outer_.set(numbers.scalars, static_cast<double>(total), numbers.local_lr);
}

void ModelExchange::apply(const Round& round, std::size_t bucket, const Numbers& numbers) {
  const Bucket& b = plan_.buckets[bucket];
  const View sum = part(store_.grads(), bucket);
  wait_for(reduced_[bucket]);
  sum_of_squares(update_, sum, &round.squares[bucket]);
  update_.host([this, r = &round, bucket] {
    check_finite(r->squares[bucket], store_, store_.grads(), plan_.buckets[bucket].params,
                 "the ranks' change", r->step);
  });
  if (rule_.elastic) {
    add_into(update_, part(common(), bucket), sum);
  } else {
    outer_.enqueue(update_, b.begin, b.end, common(), store_.grads(), &numbers.scalars);
  }
}

/// The mean of an optimizer slot, with the weights of the models' mean.
void ModelExchange::average_slot(int slot, std::int64_t step, const Numbers& numbers) {
  const View flat = store_.slot(slot);
  for (std::size_t b = 0; b < plan_.buckets.size(); ++b) {
    weighted_copy(update_, part(store_.grads(), b), part(flat, b), &numbers.scalars);
    send(b, step);
  }
  for (std::size_t b = 0; b < plan_.buckets.size(); ++b) {
    wait_for(reduced_[b]);
    take_mean(update_, part(flat, b), part(store_.grads(), b), &numbers.scalars);
  }
}

void ModelExchange::swap() {
  check(rule_.elastic, "only elastic averaging has a centre beside the weights");
  swap_contents(update_, store_.values(), common());
  update_.record().wait();
}

void ModelExchange::wait_for(const Event& exchanged) {
  update_.host([this] { wait_begin_ns_ = now_ns(); });
  update_.wait(exchanged);
  update_.host([this] { wait_ns_.fetch_add(now_ns() - wait_begin_ns_); });
}

View ModelExchange::part(const View& flat, std::size_t bucket) const {
  return slice(flat, plan_.buckets[bucket].begin, plan_.buckets[bucket].end);
}

View ModelExchange::common() const {
  return common_.view(0, store_.values().shape, store_.values().dtype);
}

std::int64_t ModelExchange::payload() const {
  const int slots = rule_.local_state == LocalState::average ? store_.slots() : 0;
  return static_cast<std::int64_t>(store_.values().bytes()) * (1 + slots);
}

}  // namespace sidestep
