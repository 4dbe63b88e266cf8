// One call from JavaScript: the context it is for, and its arguments by name, each checked as it is read.
#pragma once

#include <napi.h>

#include <initializer_list>

#include "kernels/contract.gen.h"
#include "native/context.h"

namespace lockstep {

// The product of sizes. Throws Failure ARGUMENT where it leaves 2^53.
uint64_t product(std::initializer_list<uint64_t> sizes);

// Bytes of `count` elements of `bits` bits, whole bytes.
uint64_t bytesOf(uint64_t count, uint64_t bits);

constexpr uint64_t bitsOf(Wide type) { return type == Wide::kF32 ? 32 : 16; }

class Call {
 public:
  // info[0] is the context, info[1] the object of arguments.
  explicit Call(const Napi::CallbackInfo& info);

  Context& context() const { return context_; }
  cudaStream_t stream() const { return context_.stream(); }

  // Whether the argument was given, and is not undefined.
  bool has(const char* name) const;
  // A whole number from 0 to 2^53.
  uint64_t count(const char* name) const;
  uint32_t word(const char* name) const;
  float f32(const char* name) const;
  double f64(const char* name) const;
  bool flag(const char* name) const;
  // A member of an enumeration of the contract, from 0 to `last`.
  template <typename E>
  E member(const char* name, E last) const {
    return static_cast<E>(bounded(name, static_cast<uint64_t>(last)));
  }
  Wide wide(const char* name) const { return member(name, Wide::kF16); }
  // A whole number from 0 to `last`.
  uint64_t bounded(const char* name, uint64_t last) const;

  // Device memory with room for `bytes`.
  template <typename T = void>
  T* pointer(const char* name, uint64_t bytes) const {
    return static_cast<T*>(context_.pointer(name, count(name), bytes));
  }
  // As `pointer`; null where the argument was not given.
  template <typename T = void>
  T* optional(const char* name, uint64_t bytes) const {
    return has(name) ? pointer<T>(name, bytes) : nullptr;
  }

  void check(const char* what, cudaError_t error) const { context_.check(what, error); }
  void check(const char* what, cublasStatus_t status) const { context_.check(what, status); }

  Napi::Env env() const { return arguments_.Env(); }

 private:
  Napi::Value get(const char* name) const;

  Context& context_;
  Napi::Object arguments_;
};

// The context in `value`. Throws Failure ARGUMENT for anything else, and as Context::enter.
Context& contextIn(const Napi::Value& value);
// As contextIn, also for a context that is closed or broken.
Context& anyContextIn(const Napi::Value& value);

// The JavaScript Error with a failure's fields.
Napi::Error errorOf(Napi::Env env, const Failure& failure);

// A callback of the addon: what fails in `body` is thrown in JavaScript.
template <Napi::Value (*body)(const Napi::CallbackInfo&)>
Napi::Value guarded(const Napi::CallbackInfo& info) {
  try {
    return body(info);
  } catch (const Failure& failure) {
    throw errorOf(info.Env(), failure);
  }
}

// As `guarded`, for an operation, which returns nothing.
template <void (*body)(const Call&)>
Napi::Value operation(const Napi::CallbackInfo& info) {
  try {
    body(Call(info));
    return info.Env().Undefined();
  } catch (const Failure& failure) {
    throw errorOf(info.Env(), failure);
  }
}

}  // namespace lockstep
