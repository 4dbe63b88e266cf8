#include "native/addon.h"

static Napi::Object initialize(Napi::Env env, Napi::Object exports) {
  lockstep::registerMemory(env, exports);
  lockstep::registerAmax(env, exports);
  lockstep::registerCast(env, exports);
  lockstep::registerSweep(env, exports);
  lockstep::registerQuantizeBlock(env, exports);
  lockstep::registerQuantizeTensor(env, exports);
  lockstep::registerBiasGradQuantize(env, exports);
  lockstep::registerQuantizeMx(env, exports);
  lockstep::registerQuantizeNvfp4(env, exports);
  lockstep::registerHadamard(env, exports);
  lockstep::registerDequantize(env, exports);
  lockstep::registerLayout(env, exports);
  lockstep::registerGemm(env, exports);
  lockstep::registerGemmKernels(env, exports);
  lockstep::registerActivation(env, exports);
  lockstep::registerActivationQuantize(env, exports);
  lockstep::registerGated(env, exports);
  lockstep::registerLoss(env, exports);
  lockstep::registerNorm(env, exports);
  lockstep::registerNormQuantize(env, exports);
  lockstep::registerOptimizer(env, exports);
  lockstep::registerEmbedding(env, exports);
  lockstep::registerGradNorm(env, exports);
  lockstep::registerDelayedScaling(env, exports);
  lockstep::registerAdd(env, exports);
  lockstep::registerScaled(env, exports);
  lockstep::registerSoftmax(env, exports);
#ifdef LOCKSTEP_TURNS
  lockstep::registerTurns(env, exports);
#endif
  return exports;
}

NODE_API_MODULE(lockstep, initialize)
