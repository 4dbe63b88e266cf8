// A call from JavaScript: its context and its arguments. Arguments are read by name, and each is validated when it is
// read.
#pragma once

#include <napi.h>

#include <array>
#include <bit>
#include <initializer_list>
#include <new>
#include <span>
#include <type_traits>
#include <vector>

#include "kernels/core/contract.gen.h"
#include "native/core/arguments.h"
#include "native/core/context.h"

namespace lockstep {

// The product of sizes. Throws Failure ARGUMENT if it exceeds 2^53.
uint64_t product(std::initializer_list<uint64_t> sizes);

// Bytes of `count` elements of `bits` bits, rounded up to whole bytes.
uint64_t bytesOf(uint64_t count, uint64_t bits);

constexpr uint64_t bitsOf(Wide type) { return type == Wide::kF32 ? 32 : 16; }

// The part of Call that does not depend on the declaration of the call.
class AnyCall {
 public:
  Context& context() const { return context_; }
  cudaStream_t stream() const { return context_.stream(); }

  bool has(Slot slot) const { return std::bit_cast<uint64_t>(slots_[slot.index()]) != kAbsentArgument; }
  // Returns an integer from 0 to 2^53. Throws Failure ARGUMENT for any other value.
  uint64_t count(Slot slot) const;
  // As `count`, for an integer from 0 to `last`.
  uint64_t bounded(Slot slot, uint64_t last) const;
  // As `count`, for an integer from `first` to `last`.
  uint64_t between(Slot slot, uint64_t first, uint64_t last) const;
  // Returns a signed 32-bit integer. Throws Failure ARGUMENT for any other value.
  int32_t i32(Slot slot) const;
  double f64(Slot slot) const;
  // Whether the argument is present and not 0.
  bool flag(Slot slot) const { return has(slot) && slots_[slot.index()] != 0; }
  // Returns the device address in an argument. Throws Failure ARGUMENT unless `bytes` bytes there lie inside one allocation and
  // are aligned for kernels, or if the workspace and another argument share memory.
  void* pointer(Slot slot, uint64_t bytes) const;

  // As `pointer`, but without an alignment requirement, for memory that is copied.
  void* bytesAt(Slot slot, uint64_t bytes) const;
  // As `pointer`, but aligned to elements of `bits` bits only.
  void* elementsAt(Slot slot, uint64_t bytes, uint64_t bits) const;

  void check(const char* what, cudaError_t error) const { context_.check(what, error); }
  void check(const char* what, cublasStatus_t status) const { context_.check(what, status); }

  Napi::Env env() const { return env_; }

 protected:
  // info[0] is the context.
  explicit AnyCall(const Napi::CallbackInfo& info);
  // Copies info[1] to `slots`, where arguments are then read. info[1] is a Float64Array with one element per argument.
  void readSlots(const Napi::CallbackInfo& info, std::span<double> slots);

  // Returns a copy of info[1], a Float64Array with a multiple of `size` elements.
  std::vector<double> readSlotList(const Napi::CallbackInfo& info, size_t size);
  // Reads arguments from `slots` from now on.
  void useSlots(const double* slots) const;

  // Marks the next pointer to be read as the workspace.
  void expectWorkspace() const { workspace_ = taken_; }

 private:
  struct Range {
    const char* name;
    uint64_t from;
    uint64_t to;
  };
  // The maximum number of pointers of a call.
  static constexpr size_t kMaxPointers = 48;

  Napi::Env env_;
  Context& context_;
  mutable const double* slots_ = nullptr;
  mutable std::array<Range, kMaxPointers> ranges_;
  mutable size_t taken_ = 0;
  // The index of the workspace among the pointers that were read; kMaxPointers if there is none.
  mutable size_t workspace_ = kMaxPointers;
};

// A call with the arguments that `Declared` declares (arguments.gen.h). Reading an undeclared argument does not compile.
template <typename Declared>
class Call : public AnyCall {
 public:
  using Any = Name<Declared>;
  using Optional = OptionalName<Declared>;
  using Count = Name<Declared, Kind::kCount>;
  using Pointer = Name<Declared, Kind::kPointer>;

  using Arguments = Declared;

  explicit Call(const Napi::CallbackInfo& info) : AnyCall(info) { readSlots(info, own_); }
  Call(const Call&) = delete;

  bool has(Optional name) const { return AnyCall::has(name); }
  template <Kind... kinds>
  bool has(OptionalName<Declared, kinds...> name) const {
    return AnyCall::has(name);
  }
  uint64_t count(Count name) const { return AnyCall::count(name); }
  uint64_t bounded(Count name, uint64_t last) const { return AnyCall::bounded(name, last); }
  uint64_t between(Count name, uint64_t first, uint64_t last) const { return AnyCall::between(name, first, last); }
  int32_t i32(Name<Declared, Kind::kInt> name) const { return AnyCall::i32(name); }
  uint32_t word(Name<Declared, Kind::kWord> name) const {
    return static_cast<uint32_t>(AnyCall::bounded(name, UINT32_MAX));
  }
  float f32(Name<Declared, Kind::kFloat> name) const { return static_cast<float>(f64(name)); }
  bool flag(Name<Declared, Kind::kFlag> name) const { return AnyCall::flag(name); }
  // Returns a member of an enumeration of the contract. Its number must be from 0 to the number of the last member.
  template <typename E>
  E member(Name<Declared, kindOf<E>()> name) const {
    return static_cast<E>(AnyCall::bounded(name, static_cast<uint64_t>(kLastMember<E>)));
  }
  Wide wide(Name<Declared, Kind::kWide> name) const { return member<Wide>(name); }

  // Returns the device address in an argument, as AnyCall::pointer does.
  template <typename T = void>
  T* pointer(Pointer name, uint64_t bytes) const {
    return static_cast<T*>(AnyCall::pointer(name, bytes));
  }
  // As `pointer`, but without an alignment requirement, for memory that is copied.
  void* bytesAt(Pointer name, uint64_t bytes) const { return AnyCall::bytesAt(name, bytes); }
  // As `pointer`, but aligned to elements of `bits` bits only.
  template <typename T>
  T* elements(Pointer name, uint64_t bytes, uint64_t bits) const {
    return static_cast<T*>(AnyCall::elementsAt(name, bytes, bits));
  }
  // As `pointer`, but returns null if the argument was omitted.
  template <typename T = void>
  T* optional(OptionalName<Declared, Kind::kPointer> name, uint64_t bytes) const {
    return has(name) ? pointer<T>(name, bytes) : nullptr;
  }
  // As `pointer`, for the argument "workspace". No other argument of the call may overlap this memory, because a kernel reads
  // back its own writes there.
  template <typename T>
  T* workspace(uint64_t bytes) const {
    expectWorkspace();
    return pointer<T>("workspace", bytes);
  }

 protected:
  // A call whose slots are not read yet.
  struct Unread {};
  Call(const Napi::CallbackInfo& info, Unread) : AnyCall(info) {}

 private:
  std::array<double, kArgumentCount<Declared>> own_;
};

// A call with a list of argument sets, each as `Declared` declares. Its slots are those of all sets, one set after the other.
template <typename Declared>
class ListCall : public Call<Declared> {
 public:
  explicit ListCall(const Napi::CallbackInfo& info)
      : Call<Declared>(info, typename Call<Declared>::Unread{}),
        all_(this->readSlotList(info, kArgumentCount<Declared>)) {}

  // The number of argument sets.
  size_t size() const { return all_.size() / kArgumentCount<Declared>; }
  // Makes a set the one from which arguments are read.
  void select(size_t index) const { this->useSlots(&all_[index * kArgumentCount<Declared>]); }

 private:
  std::vector<double> all_;
};

// Returns the context that `value` holds. Throws Failure ARGUMENT if `value` holds none, and the failures of Context::enter.
Context& contextIn(const Napi::Value& value);
// As contextIn, but also accepts a context that is closed or broken.
Context& anyContextIn(const Napi::Value& value);

// Converts a failure to a JavaScript Error with the same fields.
Napi::Error errorOf(Napi::Env env, const Failure& failure);

// Calls `body` and converts its C++ exceptions to JavaScript exceptions.
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

// A callback for JavaScript that calls `body` and converts its exceptions.
template <Napi::Value (*body)(const Napi::CallbackInfo&)>
Napi::Value guarded(const Napi::CallbackInfo& info) {
  return throwing(info.Env(), [&] { return body(info); });
}

template <auto body>
struct Exposed;

// `AnyArguments` is Call or ListCall.
template <typename AnyArguments, typename Result, Result (*body)(const AnyArguments&)>
struct Exposed<body> {
  static constexpr const char* kName = AnyArguments::Arguments::kName;

  static Napi::Value run(const Napi::CallbackInfo& info) {
    return throwing(info.Env(), [&]() -> Napi::Value {
      const AnyArguments call(info);
      if constexpr (!std::is_void_v<Result>) return body(call);
      body(call);
      return info.Env().Undefined();
    });
  }
};

// Exports `body`, which handles one call, as a JavaScript function with the name of that call.
template <auto body>
void expose(Napi::Env env, Napi::Object exports) {
  exports.Set(Exposed<body>::kName, Napi::Function::New<Exposed<body>::run>(env));
}

}  // namespace lockstep
