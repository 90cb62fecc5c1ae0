// Views of ordinary host variables, for small exchanges and copies.
#pragma once

#include "core/device/buffer.h"

namespace sidestep {

/// `count` elements at `data`, which must outlive the work on them.
template <class T>
View host_view(T* data, std::int64_t count = 1) {
  return {.data = reinterpret_cast<std::byte*>(data),
          .shape = Shape{count},
          .dtype = dtype_of<T>,
          .device = {}};
}

}  // namespace sidestep
