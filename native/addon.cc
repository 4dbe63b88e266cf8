#include "native/addon.h"

static Napi::Object initialize(Napi::Env env, Napi::Object exports) {
  lockstep::registerAll(env, exports);
#ifdef LOCKSTEP_TURNS
  lockstep::registerTurns(env, exports);
#endif
  return exports;
}

NODE_API_MODULE(lockstep, initialize)
