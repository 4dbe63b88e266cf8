// Matrix products by cuBLASLt. A plan is created once; calls then name it by its number.
#include "native/addon.h"
#include "native/core/call.h"
#include "native/gemm/plan.h"

namespace lockstep {

namespace {

// The maximum number of candidates of a call. cuBLASLt returns fewer.
constexpr uint64_t kMaxCandidates = 256;

using Planning = Call<calls::GemmPlan>;

cudaDataType_t typeIn(const Planning& call, Planning::Count name) {
  return static_cast<cudaDataType_t>(call.bounded(name, INT32_MAX));
}

std::optional<cublasLtMatmulMatrixScale_t> scaleIn(const Planning& call,
                                                   OptionalName<calls::GemmPlan, Kind::kCount> name) {
  if (!call.has(name)) return std::nullopt;
  return static_cast<cublasLtMatmulMatrixScale_t>(call.bounded(name, CUBLASLT_MATMUL_MATRIX_SCALE_END - 1));
}

GemmDescription descriptionIn(const Planning& call) {
  GemmDescription g{};
  g.m = call.count("m");
  g.n = call.count("n");
  g.k = call.count("k");
  g.batch = call.count("batch");
  g.transposeA = call.flag("transposeA");
  g.transposeB = call.flag("transposeB");
  const auto stride = [&](Planning::Count name) { return g.batch > 1 ? call.count(name) : 0; };
  g.a = {typeIn(call, "aType"), g.transposeA ? g.k : g.m, g.transposeA ? g.m : g.k, call.count("aPitch"),
         stride("aStride")};
  g.b = {typeIn(call, "bType"), g.transposeB ? g.n : g.k, g.transposeB ? g.k : g.n, call.count("bPitch"),
         stride("bStride")};
  g.c = {typeIn(call, "cType"), g.m, g.n, call.count("cPitch"), stride("cStride")};
  g.d = {typeIn(call, "dType"), g.m, g.n, call.count("dPitch"), stride("dStride")};
  g.compute = call.flag("tf32") ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
  g.fastAccumulation = call.flag("fastAccumulation");
  g.deviceScalars = call.flag("deviceScalars");
  g.scaleA = scaleIn(call, "aScaleMode");
  g.scaleB = scaleIn(call, "bScaleMode");
  if (call.has("biasType")) g.bias = typeIn(call, "biasType");
  if (call.has("auxType")) g.aux = typeIn(call, "auxType");
  return g;
}

template <typename Declared>
GemmPlan& planIn(const Call<Declared>& call) {
  return call.context().gemmPlans().at(call.count("plan"));
}

Napi::Value algorithmOut(Napi::Env env, const GemmAlgorithm& algorithm) {
  Napi::Object object = Napi::Object::New(env);
  object.Set("id", algorithm.id);
  object.Set("tile", algorithm.tile);
  object.Set("stages", algorithm.stages);
  object.Set("splitK", algorithm.splitK);
  object.Set("scheme", algorithm.scheme);
  object.Set("swizzle", algorithm.swizzle);
  object.Set("customOption", algorithm.customOption);
  object.Set("innerShape", static_cast<uint32_t>(algorithm.innerShape));
  object.Set("cluster", static_cast<uint32_t>(algorithm.cluster));
  object.Set("workspace", static_cast<double>(algorithm.workspace));
  Napi::Array words = Napi::Array::New(env, algorithm.words.size());
  for (uint32_t i = 0; i < algorithm.words.size(); ++i) words.Set(i, algorithm.words[i]);
  object.Set("words", words);
  return object;
}

Napi::Value optionalOut(Napi::Env env, const std::optional<GemmAlgorithm>& algorithm) {
  return algorithm ? algorithmOut(env, *algorithm) : env.Undefined();
}

// Creates a plan and returns its number.
Napi::Value Plan(const Planning& call) {
  const uint64_t number = call.context().gemmPlans().add(descriptionIn(call));
  return Napi::Number::New(call.env(), static_cast<double>(number));
}

// Returns the algorithms that cuBLASLt proposes for a plan, best first.
Napi::Value Candidates(const Call<calls::GemmCandidates>& call) {
  const GemmSearch search{static_cast<int>(call.bounded("count", kMaxCandidates)),
                          static_cast<uint32_t>(call.bounded("schemes", CUBLASLT_REDUCTION_SCHEME_MASK)),
                          call.count("workspace"), static_cast<uint32_t>(call.bounded("alignment", 256))};
  const std::vector<GemmAlgorithm> found = planIn(call).search(call.context().blas(), search);
  Napi::Array candidates = Napi::Array::New(call.env(), found.size());
  for (uint32_t i = 0; i < found.size(); ++i) candidates.Set(i, algorithmOut(call.env(), found[i]));
  return candidates;
}

// Returns an algorithm with these attributes, or undefined if there is none.
Napi::Value Configure(const Call<calls::GemmConfigure>& call) {
  GemmAlgorithm wanted;
  wanted.id = static_cast<int32_t>(call.bounded("id", INT32_MAX));
  wanted.tile = call.word("tile");
  wanted.stages = call.word("stages");
  wanted.splitK = static_cast<int32_t>(call.bounded("splitK", INT32_MAX));
  wanted.scheme = call.word("scheme");
  wanted.swizzle = call.word("swizzle");
  wanted.customOption = call.word("customOption");
  wanted.innerShape = static_cast<uint16_t>(call.bounded("innerShape", UINT16_MAX));
  wanted.cluster = static_cast<uint16_t>(call.bounded("cluster", UINT16_MAX));
  return optionalOut(call.env(), planIn(call).configure(call.context().blas(), wanted));
}

// Selects the algorithm whose opaque bytes are the 32-bit words word0 to word15. If it cannot run this plan, returns
// undefined and changes nothing.
Napi::Value Choose(const Call<calls::GemmChoose>& call) {
  static constexpr Name<calls::GemmChoose, Kind::kWord> kNames[] = {
      "word0", "word1", "word2",  "word3",  "word4",  "word5",  "word6",  "word7",
      "word8", "word9", "word10", "word11", "word12", "word13", "word14", "word15"};
  AlgorithmWords words;
  static_assert(std::size(kNames) == std::tuple_size_v<AlgorithmWords>);
  for (size_t i = 0; i < words.size(); ++i) words[i] = call.word(kNames[i]);
  return optionalOut(call.env(), planIn(call).choose(call.context().blas(), words));
}

void Forget(const Call<calls::GemmForget>& call) { call.context().gemmPlans().remove(call.count("plan")); }

using Multiplication = Call<calls::Gemm>;

// Returns the address of an operand that starts `offset` bytes after the pointer. The offset must be a multiple of 16.
const void* operandIn(const Multiplication& call, Multiplication::Pointer name, Multiplication::Count offsetName,
                      uint64_t bytes) {
  const uint64_t offset = call.count(offsetName);
  if (offset % 16 != 0) throw Failure{"ARGUMENT", std::string(offsetName.text()) + " is not a multiple of 16"};
  return call.pointer<const char>(name, offset + bytes) + offset;
}

// Runs a plan. `scalars` holds {alpha, beta} if the plan expects them in device memory.
void Gemm(const Multiplication& call) {
  GemmPlan& plan = planIn(call);
  const GemmDescription& g = plan.description();
  GemmPointers p{};
  p.a = operandIn(call, "a", "aOffset", plan.bytes(g.a));
  p.b = operandIn(call, "b", "bOffset", plan.bytes(g.b));
  p.d = call.pointer("d", plan.bytes(g.d));
  p.c = call.pointer(call.has("c") ? Multiplication::Pointer("c") : Multiplication::Pointer("d"), plan.bytes(g.c));
  if (g.scaleA) p.scaleA = call.pointer("aScale", plan.scaleBytes(*g.scaleA, g.m));
  if (g.scaleB) p.scaleB = call.pointer("bScale", plan.scaleBytes(*g.scaleB, g.n));
  if (g.bias) p.bias = call.pointer("bias", plan.biasBytes());
  if (g.aux) p.aux = call.pointer("aux", plan.auxBytes());
  if (plan.workspaceBytes() > 0) p.workspace = call.context().workspace(plan.workspaceBytes());
  const float alpha = g.deviceScalars ? 0 : call.f32("alpha");
  const float beta = g.deviceScalars ? 0 : call.f32("beta");
  const float* scalars = g.deviceScalars ? call.pointer<float>("scalars", 2 * sizeof(float)) : nullptr;
  p.alpha = scalars ? scalars : &alpha;
  p.beta = scalars ? scalars + 1 : &beta;
  // Benchmarks repeat the product here, so that the host's cost per product is small. The number is bounded, because
  // the fuzzer passes any number.
  const uint64_t times = call.has("times") ? call.bounded("times", 1000) : 1;
  for (uint64_t i = 0; i < times; ++i) {
    call.check("cublasLtMatmul", plan.run(call.context().blas(), p, call.stream()));
  }
}

}  // namespace

void registerGemm(Napi::Env env, Napi::Object exports) {
  expose<Plan>(env, exports);
  expose<Candidates>(env, exports);
  expose<Configure>(env, exports);
  expose<Choose>(env, exports);
  expose<Forget>(env, exports);
  expose<Gemm>(env, exports);
}

}  // namespace lockstep
