// FunctionRef: a parameter that takes any callable and only calls it, now.
//
// Thread:     as the callable.
// Memory:     two pointers; it borrows the callable, which must live as long.
// Cost:       one indirect call.
// Not here:   callables that are kept (std::function).
#pragma once

#include <type_traits>

namespace stemma {

// A borrowed callable: no allocation, no ownership. Must not outlive the callable it was made from.
template <typename Signature>
class FunctionRef;

template <typename R, typename... Args>
class FunctionRef<R(Args...)> {
 public:
  template <typename F>
    requires(!std::is_same_v<std::remove_cvref_t<F>, FunctionRef>)
  FunctionRef(F&& callable) noexcept  // NOLINT: implicit on purpose
      : object_(const_cast<void*>(static_cast<const void*>(&callable))),
        call_([](void* object, Args... args) -> R {
          return (*static_cast<std::remove_reference_t<F>*>(object))(args...);
        }) {}

  R operator()(Args... args) const { return call_(object_, args...); }

 private:
  void* object_;
  R (*call_)(void*, Args...);
};

}  // namespace stemma
