#include "comm/accumulator.h"

#include "core/optim/flat.h"

namespace sidestep {

GradAccumulator::GradAccumulator(ParamStore& store, Stream& compute)
    : memory_(store.device(), store.grads().bytes()),
      sink_(store, compute, memory_.view(0, store.grads().shape, DType::f32)) {}

void GradAccumulator::add(Stream& stream) {
  if (sink_.begun) {
    add_into(stream, sink_.sum, sink_.store.grads());
  } else {
    copy(stream, sink_.sum, sink_.store.grads());
  }
  sink_.begun = true;
}

GradSink& GradAccumulator::last_sink(GradSink& next) {
  if (!sink_.begun) return next;
  sink_.next = &next;
  return sink_;
}

void GradAccumulator::flush(Stream& stream) {
  if (sink_.begun) copy(stream, sink_.store.grads(), sink_.sum);
}

/// Enqueued on the stream that backward runs on, where the gradient is final already.
void GradAccumulator::AddingSink::grad_ready(ParamId p, const Event&) {
  const View grad = store.grad(p);
  const auto offset = static_cast<std::size_t>(store.offset(p)) * size_of(sum.dtype);
  add_into(compute, grad, {sum.data + offset, grad.shape, grad.dtype, grad.device});
  next->grad_ready(p, compute.record());
}

void GradAccumulator::AddingSink::last_read(ParamId p, const Event& event) {
  next->last_read(p, event);
}

}  // namespace sidestep
