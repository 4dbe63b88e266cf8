// The functions that the addon exports to JavaScript. Each registration function registers the functions of one source file.
#pragma once

#include <napi.h>

#include "native/registrations.gen.h"

namespace lockstep {

// Registers the functions of scripts/turns. It exists only in builds whose sources scripts/turns has instrumented.
void registerTurns(Napi::Env env, Napi::Object exports);

}  // namespace lockstep
