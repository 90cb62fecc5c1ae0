#include "core/graph/param_store.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/base/rng.h"

namespace sidestep {
namespace {

constexpr std::int64_t kAlign = 16;  // elements: 64 bytes of float32

float initial_value(const Init& init, std::uint64_t key, std::uint64_t element) {
  const auto scale = static_cast<float>(init.scale);
  switch (init.kind) {
    case Init::Kind::zeros:
      return 0;
    case Init::Kind::ones:
      return 1;
    case Init::Kind::uniform:
      return (2 * random_uniform(key, element) - 1) * scale;
    case Init::Kind::normal:
      return random_normal(key, element) * scale;
  }
  return 0;
}

}  // namespace

ParamStore::ParamStore(std::vector<ParamSpec> specs, std::span<const ParamId> ready_order,
                       Device device)
    : specs_(std::move(specs)),
      order_(ready_order.begin(), ready_order.end()),
      offsets_(specs_.size(), -1),
      device_(device) {
  check(order_.size() == specs_.size(), "ready_order is not a permutation of the parameters");
  for (const ParamId p : order_) {
    check(offset(p) == -1, "ready_order names a parameter twice");
    offsets_[static_cast<std::size_t>(p)] = flat_numel_;
    flat_numel_ += padded_numel(p);
  }
  const std::size_t bytes = static_cast<std::size_t>(flat_numel_) * sizeof(float);
  values_ = Buffer(device, bytes);
  grads_ = Buffer(device, bytes);
}

std::int64_t ParamStore::padded_numel(ParamId p) const {
  return (spec(p).shape.numel() + kAlign - 1) / kAlign * kAlign;
}

std::int64_t ParamStore::param_numel() const {
  std::int64_t n = 0;
  for (const ParamSpec& spec : specs_) n += spec.shape.numel();
  return n;
}

View ParamStore::part(const Buffer& flat, ParamId p) const {
  return flat.view(static_cast<std::size_t>(offset(p)) * sizeof(float), spec(p).shape, DType::f32);
}

View ParamStore::whole(const Buffer& flat) const {
  return flat.view(0, Shape{flat_numel_}, DType::f32);
}

int ParamStore::add_slot(std::string name) {
  check(std::ranges::find(slot_names_, name) == slot_names_.end(), "slot exists: " + name);
  slot_names_.push_back(std::move(name));
  slots_.push_back(std::make_shared<Buffer>(device_, values_.size()));
  return slots() - 1;
}

ParamStore ParamStore::twin() const {
  ParamStore twin(specs_, order_, device_);
  twin.slot_names_ = slot_names_;
  twin.slots_ = slots_;
  return twin;
}

void ParamStore::initialize(std::uint64_t seed) {
  Buffer host(Device{}, static_cast<std::size_t>(flat_numel_) * sizeof(float));
  auto* flat = reinterpret_cast<float*>(host.data());
  for (const ParamId p : order_) {
    const std::uint64_t key = rng_key(seed, "init." + spec(p).name);
    for (std::int64_t i = 0; i < spec(p).shape.numel(); ++i)
      flat[offset(p) + i] = initial_value(spec(p).init, key, static_cast<std::uint64_t>(i));
  }
  Stream stream = Stream::create(device_, "init", StreamMode::direct);
  copy(stream, values(), host.view(0, Shape{flat_numel_}, DType::f32));
  stream.synchronize();
}

std::size_t ParamStore::bytes() const {
  return (2 + slots_.size()) * static_cast<std::size_t>(flat_numel_) * sizeof(float);
}

}  // namespace sidestep
