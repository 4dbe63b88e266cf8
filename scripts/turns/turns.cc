#include "kernels/turns.h"

#include "native/addon.h"

namespace lockstep {

namespace turns {

uint8_t host[kBytes];

static const Unit*& first() {
  static const Unit* unit = nullptr;
  return unit;
}

Unit::Unit(const char* unitName, bool (*unitRead)(uint8_t*)) : name(unitName), read(unitRead), next(first()) {
  first() = this;
}

const Unit* units() { return first(); }

}  // namespace turns

namespace {

// Returns the bytes of every .cu file that could be read, and those of the host as "host".
Napi::Value Turns(const Napi::CallbackInfo& info) {
  Napi::Object result = Napi::Object::New(info.Env());
  const auto add = [&](const char* name) {
    Napi::Uint8Array bytes = Napi::Uint8Array::New(info.Env(), turns::kBytes);
    result.Set(name, bytes);
    return bytes.Data();
  };
  std::copy_n(turns::host, turns::kBytes, add("host"));
  for (const turns::Unit* unit = turns::units(); unit; unit = unit->next) {
    uint8_t bytes[turns::kBytes];
    if (unit->read(bytes)) std::copy_n(bytes, turns::kBytes, add(unit->name));
  }
  return result;
}

}  // namespace

void registerTurns(Napi::Env env, Napi::Object exports) { exports.Set("turns", Napi::Function::New<Turns>(env)); }

}  // namespace lockstep
