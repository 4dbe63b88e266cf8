#include "native/call.h"

#include <cmath>
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

Call::Call(const Napi::CallbackInfo& info)
    : context_(contextIn(info[0])),
      arguments_(info[1].IsObject() ? info[1].As<Napi::Object>() : Napi::Object::New(info.Env())) {}

Napi::Value Call::get(const char* name) const { return arguments_.Get(name); }

bool Call::has(const char* name) const { return !get(name).IsUndefined(); }

double Call::f64(const char* name) const {
  const Napi::Value value = get(name);
  if (!value.IsNumber()) refuse(std::string(name) + " is no number");
  return value.As<Napi::Number>().DoubleValue();
}

uint64_t Call::count(const char* name) const {
  const double value = f64(name);
  if (!(value >= 0 && value <= kLargestCount) || value != std::floor(value)) {
    refuse(std::string(name) + " is no whole number from 0 to 2^53");
  }
  return static_cast<uint64_t>(value);
}

uint64_t Call::bounded(const char* name, uint64_t last) const {
  const uint64_t value = count(name);
  if (value > last) refuse(std::string(name) + " is " + std::to_string(value) + ", above " + std::to_string(last));
  return value;
}

uint32_t Call::word(const char* name) const { return static_cast<uint32_t>(bounded(name, UINT32_MAX)); }

float Call::f32(const char* name) const { return static_cast<float>(f64(name)); }

bool Call::flag(const char* name) const { return get(name).ToBoolean(); }

Napi::Error errorOf(Napi::Env env, const Failure& failure) {
  Napi::Error error = Napi::Error::New(env, failure.message);
  error.Set("code", Napi::String::New(env, failure.code));
  error.Set("wanted", Napi::Number::New(env, static_cast<double>(failure.wanted)));
  error.Set("free", Napi::Number::New(env, static_cast<double>(failure.free)));
  return error;
}

}  // namespace lockstep
