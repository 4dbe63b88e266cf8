#include "native/core/call.h"

#include <cmath>
#include <cstring>
#include <string>

namespace lockstep {

namespace {

constexpr double kLargestCount = 9007199254740992.0;  // 2^53

[[noreturn]] void refuse(const std::string& message) { throw Failure{"ARGUMENT", message}; }

}  // namespace

uint64_t product(std::initializer_list<uint64_t> sizes) {
  double exact = 1;
  uint64_t result = 1;
  for (uint64_t size : sizes) {
    exact *= static_cast<double>(size);
    if (exact > kLargestCount) refuse("sizes are too large: their product exceeds 2^53");
    result *= size;
  }
  return result;
}

uint64_t bytesOf(uint64_t count, uint64_t bits) { return (product({count, bits}) + 7) / 8; }

AnyCall::AnyCall(const Napi::CallbackInfo& info) : env_(info.Env()), context_(contextIn(info[0])) {}

namespace {

// Returns the elements of a Float64Array; none if `value` is no Float64Array. A detached typed array has a null pointer.
std::span<const double> numbersIn(Napi::Env env, napi_value value) {
  napi_typedarray_type type;
  size_t length = 0;
  void* data = nullptr;
  const napi_status status = napi_get_typedarray_info(env, value, &type, &length, &data, nullptr, nullptr);
  if (status != napi_ok || type != napi_float64_array || !data) return {};
  return {static_cast<const double*>(data), length};
}

}  // namespace

void AnyCall::readSlots(const Napi::CallbackInfo& info, std::span<double> slots) {
  const std::span<const double> numbers = numbersIn(env_, info[1]);
  if (numbers.size() != slots.size()) {
    refuse("the arguments are not a Float64Array of " + std::to_string(slots.size()) + " slots");
  }
  std::memcpy(slots.data(), numbers.data(), slots.size_bytes());
  slots_ = slots.data();
}

std::vector<double> AnyCall::readSlotList(const Napi::CallbackInfo& info, size_t size) {
  const std::span<const double> numbers = numbersIn(env_, info[1]);
  if (numbers.empty() || numbers.size() % size != 0) {
    refuse("the arguments are not a Float64Array of sets of " + std::to_string(size) + " slots");
  }
  return {numbers.begin(), numbers.end()};
}

void AnyCall::useSlots(const double* slots) const {
  slots_ = slots;
  taken_ = 0;
  workspace_ = kMaxPointers;
}

double AnyCall::f64(Slot name) const {
  if (!has(name)) refuse(std::string(name.text()) + " was not given");
  return slots_[name.index()];
}

uint64_t AnyCall::count(Slot name) const {
  const double value = f64(name);
  if (!(value >= 0 && value <= kLargestCount) || value != std::floor(value)) {
    refuse(std::string(name.text()) + " is not an integer from 0 to 2^53");
  }
  return static_cast<uint64_t>(value);
}

uint64_t AnyCall::bounded(Slot name, uint64_t last) const {
  const uint64_t value = count(name);
  if (value > last)
    refuse(std::string(name.text()) + " is " + std::to_string(value) + ", above " + std::to_string(last));
  return value;
}

uint64_t AnyCall::between(Slot name, uint64_t first, uint64_t last) const {
  const uint64_t value = bounded(name, last);
  if (value < first)
    refuse(std::string(name.text()) + " is " + std::to_string(value) + ", below " + std::to_string(first));
  return value;
}

int32_t AnyCall::i32(Slot name) const {
  const double value = f64(name);
  if (!(value >= INT32_MIN && value <= INT32_MAX) || value != std::floor(value)) {
    refuse(std::string(name.text()) + " is not an integer of 32 bits");
  }
  return static_cast<int32_t>(value);
}

void* AnyCall::pointer(Slot name, uint64_t bytes) const {
  const uint64_t from = count(name);
  void* pointer = context_.pointer(name.text(), from, bytes);
  if (taken_ == kMaxPointers) refuse("a call has more than " + std::to_string(kMaxPointers) + " pointers");
  const size_t index = taken_++;
  ranges_[index] = {name.text(), from, from + bytes};
  for (size_t i = 0; i < index && workspace_ < taken_; ++i) {
    if (index != workspace_ && i != workspace_) continue;
    const Range& other = ranges_[i];
    if (bytes > 0 && other.from < other.to && other.from < from + bytes && from < other.to) {
      refuse(std::string(name.text()) + " and " + other.name + " share memory; the workspace must be apart");
    }
  }
  return pointer;
}

void* AnyCall::bytesAt(Slot name, uint64_t bytes) const { return context_.range(name.text(), count(name), bytes); }

void* AnyCall::elementsAt(Slot name, uint64_t bytes, uint64_t bits) const {
  if (count(name) % (bits / 8) != 0) refuse(std::string(name.text()) + " is not a multiple of an element");
  return bytesAt(name, bytes);
}

Napi::Error errorOf(Napi::Env env, const Failure& failure) {
  Napi::Error error = Napi::Error::New(env, failure.message);
  error.Set("code", Napi::String::New(env, failure.code));
  error.Set("wanted", Napi::Number::New(env, static_cast<double>(failure.wanted)));
  error.Set("free", Napi::Number::New(env, static_cast<double>(failure.free)));
  return error;
}

}  // namespace lockstep
