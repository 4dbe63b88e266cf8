// One call from JavaScript: the context it is for, and its arguments by name, each checked as it is read.
#pragma once

#include <napi.h>

#include <array>
#include <bit>
#include <initializer_list>
#include <new>
#include <string_view>

#include "kernels/core/contract.gen.h"
#include "native/core/arguments.gen.h"
#include "native/core/context.h"

namespace lockstep {

// The product of sizes. Throws Failure ARGUMENT where it leaves 2^53.
uint64_t product(std::initializer_list<uint64_t> sizes);

// Bytes of `count` elements of `bits` bits, whole bytes.
uint64_t bytesOf(uint64_t count, uint64_t bits);

constexpr uint64_t bitsOf(Wide type) { return type == Wide::kF32 ? 32 : 16; }

// The name of an argument. One that src/backends/cuda/native-arguments.ts does not list does not compile.
class Name {
 public:
  consteval Name(const char* text) : Name(text, "") {}
  consteval Name(std::string_view prefix, std::string_view rest) : slot_(slotOf(prefix, rest)) {}

  constexpr size_t slot() const { return slot_; }
  constexpr const char* text() const { return kArgumentNames[slot_]; }

 private:
  static consteval size_t slotOf(std::string_view prefix, std::string_view rest) {
    for (size_t slot = 0; slot < kArgumentCount; ++slot) {
      const std::string_view name = kArgumentNames[slot];
      if (name.size() == prefix.size() + rest.size() && name.starts_with(prefix) && name.ends_with(rest)) return slot;
    }
    throw "src/backends/cuda/native-arguments.ts does not list this name";
  }

  size_t slot_;
};

class Call {
 public:
  // info[0] is the context, info[1] a Float64Array of the arguments in their slots, which is copied.
  explicit Call(const Napi::CallbackInfo& info);

  Context& context() const { return context_; }
  cudaStream_t stream() const { return context_.stream(); }

  bool has(Name name) const { return std::bit_cast<uint64_t>(slots_[name.slot()]) != kAbsentArgument; }
  // A whole number from 0 to 2^53.
  uint64_t count(Name name) const;
  uint32_t word(Name name) const;
  float f32(Name name) const;
  double f64(Name name) const;
  // Whether it was given and is not 0.
  bool flag(Name name) const { return has(name) && slots_[name.slot()] != 0; }
  // A member of an enumeration of the contract, from 0 to `last`.
  template <typename E>
  E member(Name name, E last) const {
    return static_cast<E>(bounded(name, static_cast<uint64_t>(last)));
  }
  Wide wide(Name name) const { return member(name, Wide::kF16); }
  // A whole number from 0 to `last`.
  uint64_t bounded(Name name, uint64_t last) const;

  // Device memory with room for `bytes`.
  template <typename T = void>
  T* pointer(Name name, uint64_t bytes) const {
    return static_cast<T*>(take(name, bytes));
  }
  // As `pointer`; null where the argument was not given.
  template <typename T = void>
  T* optional(Name name, uint64_t bytes) const {
    return has(name) ? pointer<T>(name, bytes) : nullptr;
  }
  // As `pointer`, of the argument "workspace": memory that no other argument of the call lies in, for a kernel trusts what it
  // has put there.
  template <typename T>
  T* workspace(uint64_t bytes) const {
    workspace_ = taken_;
    return pointer<T>("workspace", bytes);
  }

  void check(const char* what, cudaError_t error) const { context_.check(what, error); }
  void check(const char* what, cublasStatus_t status) const { context_.check(what, status); }

  Napi::Env env() const { return env_; }

 private:
  struct Range {
    const char* name;
    uint64_t from;
    uint64_t to;
  };
  // Pointers of a call, at most.
  static constexpr size_t kMaxPointers = 48;

  // What `pointer` gives. Throws Failure ARGUMENT where the workspace and another argument share a byte.
  void* take(Name name, uint64_t bytes) const;

  Napi::Env env_;
  Context& context_;
  std::array<double, kArgumentCount> slots_;
  mutable std::array<Range, kMaxPointers> ranges_;
  mutable size_t taken_ = 0;
  // Which of them is the workspace.
  mutable size_t workspace_ = kMaxPointers;
};

// The context in `value`. Throws Failure ARGUMENT for anything else, and as Context::enter.
Context& contextIn(const Napi::Value& value);
// As contextIn, also for a context that is closed or broken.
Context& anyContextIn(const Napi::Value& value);

// The JavaScript Error with a failure's fields.
Napi::Error errorOf(Napi::Env env, const Failure& failure);

// Calls `body`; what fails in it is thrown in JavaScript.
template <typename Body>
Napi::Value throwing(Napi::Env env, Body body) {
  try {
    return body();
  } catch (const Failure& failure) {
    throw errorOf(env, failure);
  } catch (const std::bad_alloc&) {
    throw errorOf(env, {"OUT_OF_MEMORY", "the host has no memory left"});
  }
}

// A callback of the addon.
template <Napi::Value (*body)(const Napi::CallbackInfo&)>
Napi::Value guarded(const Napi::CallbackInfo& info) {
  return throwing(info.Env(), [&] { return body(info); });
}

// As `guarded`, for an operation, which returns nothing.
template <void (*body)(const Call&)>
Napi::Value operation(const Napi::CallbackInfo& info) {
  return throwing(info.Env(), [&] {
    body(Call(info));
    return info.Env().Undefined();
  });
}

}  // namespace lockstep
