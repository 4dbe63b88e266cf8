// Fills device memory.
#include "native/addon.h"
#include "native/core/call.h"

namespace lockstep {

namespace {

// Sets all bytes of a range of device memory to one value.
void Fill(const Call<calls::Fill>& call) {
  const uint64_t bytes = call.count("bytes");
  void* to = call.pointer("to", bytes);
  const int value = static_cast<int>(call.bounded("value", 255));
  if (bytes > 0) call.check("fill", cudaMemsetAsync(to, value, bytes, call.stream()));
}

}  // namespace

void registerFill(Napi::Env env, Napi::Object exports) { expose<Fill>(env, exports); }

}  // namespace lockstep
