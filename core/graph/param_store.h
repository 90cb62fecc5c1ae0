// Flat storage of parameters, gradients and optimizer slots, in the order in which gradients become
// ready, so that a bucket is a slice. Main thread creates it; streams work on its views.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/device/buffer.h"
#include "core/graph/graph.h"

namespace sidestep {

class ParamStore {
 public:
  /// `ready_order` is a permutation of 0..specs.size()-1. Each parameter starts at a multiple of 16
  /// elements; the padding between is zero and stays zero.
  ParamStore(std::vector<ParamSpec> specs, std::span<const ParamId> ready_order, Device device);

  int count() const { return static_cast<int>(specs_.size()); }
  const ParamSpec& spec(ParamId p) const { return specs_[static_cast<std::size_t>(p)]; }
  /// Parameters in flat (ready) order.
  const std::vector<ParamId>& order() const { return order_; }
  /// Element offset and padded length in the flat buffers.
  std::int64_t offset(ParamId p) const { return offsets_[static_cast<std::size_t>(p)]; }
  std::int64_t padded_numel(ParamId p) const;
  std::int64_t flat_numel() const { return flat_numel_; }
  /// Sum of the parameters' own elements, without padding.
  std::int64_t param_numel() const;

  View value(ParamId p) const { return part(values_, p); }
  View grad(ParamId p) const { return part(grads_, p); }
  View values() const { return whole(values_); }
  View grads() const { return whole(grads_); }

  /// Adds an optimizer slot ("momentum"), zeros; names are unique.
  int add_slot(std::string name);
  int slots() const { return static_cast<int>(slots_.size()); }
  const std::string& slot_name(int slot) const { return slot_names_[static_cast<std::size_t>(slot)]; }
  View slot(int slot) const { return whole(*slots_[static_cast<std::size_t>(slot)]); }
  View slot(int slot, ParamId p) const { return part(*slots_[static_cast<std::size_t>(slot)], p); }
  /// A store of the same layout with values and gradients of its own (zero) and these same slots.
  ParamStore twin() const;

  /// Initial values from (seed, name, element) by each spec's Init.
  void initialize(std::uint64_t seed);
  /// Bytes held.
  std::size_t bytes() const;
  Device device() const { return device_; }

 private:
  View part(const Buffer& flat, ParamId p) const;
  View whole(const Buffer& flat) const;

  std::vector<ParamSpec> specs_;
  std::vector<ParamId> order_;
  std::vector<std::int64_t> offsets_;
  std::int64_t flat_numel_ = 0;
  Device device_;
  Buffer values_;
  Buffer grads_;
  std::vector<std::string> slot_names_;
  std::vector<std::shared_ptr<Buffer>> slots_;  ///< twins share them
};

}  // namespace sidestep
