// What the addon exports: one function registers the functions of one stem.
#pragma once

#include <napi.h>

#include "native/registrations.gen.h"

namespace lockstep {

// Only where the sources were marked (scripts/turns).
void registerTurns(Napi::Env env, Napi::Object exports);

}  // namespace lockstep
