// The functions that the addon exports to JavaScript. Each registration function registers the functions of one source file.
#pragma once

#include <napi.h>

#include "native/registrations.gen.h"

namespace lockstep {

// Only in builds whose sources were instrumented by scripts/turns.
void registerTurns(Napi::Env env, Napi::Object exports);

}  // namespace lockstep
