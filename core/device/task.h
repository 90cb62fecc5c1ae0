// A move-only void() callable with inline storage only: enqueueing one never allocates.
#pragma once

#include <cstddef>
#include <new>
#include <type_traits>
#include <utility>

namespace sidestep {

class Task {
 public:
  static constexpr std::size_t kCapacity = 192;

  Task() noexcept {}  // NOLINT: user-provided, so that Task() does not zero the storage
  template <class F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, Task>)
      Task(F&& f) {  // NOLINT: a task is made from any callable
    using Fn = std::remove_cvref_t<F>;
    static_assert(sizeof(Fn) <= kCapacity && alignof(Fn) <= alignof(std::max_align_t),
                  "capture less: a Task has inline storage only");
    static_assert(std::is_nothrow_move_constructible_v<Fn>);
    new (storage_) Fn(std::forward<F>(f));
    ops_ = &kOps<Fn>;
  }
  Task(Task&& other) noexcept { take(other); }
  Task& operator=(Task&& other) noexcept {
    if (this != &other) {
      reset();
      take(other);
    }
    return *this;
  }
  ~Task() { reset(); }

  void operator()() { ops_->call(storage_); }
  explicit operator bool() const { return ops_ != nullptr; }

 private:
  struct Ops {
    void (*call)(void*);
    void (*move)(void* to, void* from) noexcept;
    void (*destroy)(void*) noexcept;
  };
  template <class Fn>
  static constexpr Ops kOps = {
      [](void* p) { (*static_cast<Fn*>(p))(); },
      [](void* to, void* from) noexcept { new (to) Fn(std::move(*static_cast<Fn*>(from))); },
      [](void* p) noexcept { static_cast<Fn*>(p)->~Fn(); }};

  void take(Task& other) noexcept {
    ops_ = other.ops_;
    if (ops_ != nullptr) ops_->move(storage_, other.storage_);
    other.reset();
  }
  void reset() noexcept {
    if (ops_ != nullptr) ops_->destroy(storage_);
    ops_ = nullptr;
  }

  alignas(std::max_align_t) std::byte storage_[kCapacity];
  const Ops* ops_ = nullptr;
};

}  // namespace sidestep
