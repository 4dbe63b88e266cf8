// One call from JavaScript: the context it is for, and its arguments by name, each checked as it is read.
#pragma once

#include <napi.h>

#include <array>
#include <bit>
#include <initializer_list>
#include <new>
#include <span>
#include <type_traits>

#include "kernels/core/contract.gen.h"
#include "native/core/arguments.h"
#include "native/core/context.h"

namespace lockstep {

// The product of sizes. Throws Failure ARGUMENT where it leaves 2^53.
uint64_t product(std::initializer_list<uint64_t> sizes);

// Bytes of `count` elements of `bits` bits, whole bytes.
uint64_t bytesOf(uint64_t count, uint64_t bits);

constexpr uint64_t bitsOf(Wide type) { return type == Wide::kF32 ? 32 : 16; }

// What a call has besides the names of its arguments.
class AnyCall {
 public:
  Context& context() const { return context_; }
  cudaStream_t stream() const { return context_.stream(); }

  bool has(Slot slot) const { return std::bit_cast<uint64_t>(slots_[slot.index()]) != kAbsentArgument; }
  // A whole number from 0 to 2^53.
  uint64_t count(Slot slot) const;
  // A whole number from 0 to `last`.
  uint64_t bounded(Slot slot, uint64_t last) const;
  double f64(Slot slot) const;
  // Whether it was given and is not 0.
  bool flag(Slot slot) const { return has(slot) && slots_[slot.index()] != 0; }
  // Device memory with room for `bytes`. Throws Failure ARGUMENT where the workspace and another argument share a byte.
  void* pointer(Slot slot, uint64_t bytes) const;

  void check(const char* what, cudaError_t error) const { context_.check(what, error); }
  void check(const char* what, cublasStatus_t status) const { context_.check(what, status); }

  Napi::Env env() const { return env_; }

 protected:
  // info[0] is the context.
  explicit AnyCall(const Napi::CallbackInfo& info);
  // Copies info[1], a Float64Array of as many arguments, to `slots`, which are read from now on.
  void readSlots(const Napi::CallbackInfo& info, std::span<double> slots);

  // The next pointer is the workspace.
  void expectWorkspace() const { workspace_ = taken_; }

 private:
  struct Range {
    const char* name;
    uint64_t from;
    uint64_t to;
  };
  // Pointers of a call, at most.
  static constexpr size_t kMaxPointers = 48;

  Napi::Env env_;
  Context& context_;
  const double* slots_ = nullptr;
  mutable std::array<Range, kMaxPointers> ranges_;
  mutable size_t taken_ = 0;
  // Which of them is the workspace.
  mutable size_t workspace_ = kMaxPointers;
};

// A call of what `Declared` declares (arguments.gen.h): an argument that it does not declare cannot be read.
template <typename Declared>
class Call : public AnyCall {
 public:
  using Any = Name<Declared>;
  using Optional = OptionalName<Declared>;
  using Count = Name<Declared, Kind::kCount>;
  using Pointer = Name<Declared, Kind::kPointer>;

  explicit Call(const Napi::CallbackInfo& info) : AnyCall(info) { readSlots(info, own_); }
  Call(const Call&) = delete;

  bool has(Optional name) const { return AnyCall::has(name); }
  template <Kind... kinds>
  bool has(OptionalName<Declared, kinds...> name) const {
    return AnyCall::has(name);
  }
  uint64_t count(Count name) const { return AnyCall::count(name); }
  uint64_t bounded(Count name, uint64_t last) const { return AnyCall::bounded(name, last); }
  uint32_t word(Name<Declared, Kind::kWord> name) const {
    return static_cast<uint32_t>(AnyCall::bounded(name, UINT32_MAX));
  }
  float f32(Name<Declared, Kind::kFloat> name) const { return static_cast<float>(f64(name)); }
  bool flag(Name<Declared, Kind::kFlag> name) const { return AnyCall::flag(name); }
  // A member of an enumeration of the contract, from 0 to `last`.
  template <typename E>
  E member(std::type_identity_t<Name<Declared, kindOf<E>()>> name, E last) const {
    return static_cast<E>(AnyCall::bounded(name, static_cast<uint64_t>(last)));
  }
  Wide wide(Name<Declared, Kind::kWide> name) const { return member(name, Wide::kF16); }

  // Device memory with room for `bytes`.
  template <typename T = void>
  T* pointer(Pointer name, uint64_t bytes) const {
    return static_cast<T*>(AnyCall::pointer(name, bytes));
  }
  // As `pointer`; null where the argument was not given.
  template <typename T = void>
  T* optional(OptionalName<Declared, Kind::kPointer> name, uint64_t bytes) const {
    return has(name) ? pointer<T>(name, bytes) : nullptr;
  }
  // As `pointer`, of the argument "workspace": memory that no other argument of the call lies in, for a kernel trusts what it
  // has put there.
  template <typename T>
  T* workspace(uint64_t bytes) const {
    expectWorkspace();
    return pointer<T>("workspace", bytes);
  }

 private:
  std::array<double, kArgumentCount<Declared>> own_;
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

template <auto body>
struct Exposed;

template <typename Declared, typename Result, Result (*body)(const Call<Declared>&)>
struct Exposed<body> {
  static constexpr const char* kName = Declared::kName;

  static Napi::Value run(const Napi::CallbackInfo& info) {
    return throwing(info.Env(), [&]() -> Napi::Value {
      const Call<Declared> call(info);
      if constexpr (!std::is_void_v<Result>) return body(call);
      body(call);
      return info.Env().Undefined();
    });
  }
};

// Exports `body`, a function of one call, under the name of that call.
template <auto body>
void expose(Napi::Env env, Napi::Object exports) {
  exports.Set(Exposed<body>::kName, Napi::Function::New<Exposed<body>::run>(env));
}

}  // namespace lockstep
