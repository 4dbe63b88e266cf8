// The functions that the addon exports to JavaScript. Each registration function registers the functions of one source file.
#pragma once

#include <napi.h>

namespace lockstep {

void registerMemory(Napi::Env env, Napi::Object exports);
void registerActivation(Napi::Env env, Napi::Object exports);
void registerActivationQuantize(Napi::Env env, Napi::Object exports);
void registerAdd(Napi::Env env, Napi::Object exports);
void registerAmax(Napi::Env env, Napi::Object exports);
void registerBiasGradQuantize(Napi::Env env, Napi::Object exports);
void registerCast(Napi::Env env, Napi::Object exports);
void registerDelayedScaling(Napi::Env env, Napi::Object exports);
void registerDequantize(Napi::Env env, Napi::Object exports);
void registerEmbedding(Napi::Env env, Napi::Object exports);
void registerGated(Napi::Env env, Napi::Object exports);
void registerGemm(Napi::Env env, Napi::Object exports);
void registerGemmKernels(Napi::Env env, Napi::Object exports);
void registerGradNorm(Napi::Env env, Napi::Object exports);
void registerHadamard(Napi::Env env, Napi::Object exports);
void registerLayout(Napi::Env env, Napi::Object exports);
void registerLoss(Napi::Env env, Napi::Object exports);
void registerNorm(Napi::Env env, Napi::Object exports);
void registerNormQuantize(Napi::Env env, Napi::Object exports);
void registerOptimizer(Napi::Env env, Napi::Object exports);
void registerQuantizeBlock(Napi::Env env, Napi::Object exports);
void registerQuantizeMx(Napi::Env env, Napi::Object exports);
void registerQuantizeNvfp4(Napi::Env env, Napi::Object exports);
void registerQuantizeTensor(Napi::Env env, Napi::Object exports);
void registerScaled(Napi::Env env, Napi::Object exports);
void registerSoftmax(Napi::Env env, Napi::Object exports);
void registerSweep(Napi::Env env, Napi::Object exports);
// Only in builds whose sources were instrumented by scripts/turns.
void registerTurns(Napi::Env env, Napi::Object exports);

}  // namespace lockstep
