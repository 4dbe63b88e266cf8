/**
 * The tests to run for each folder: its own tests, and those of the code built on it. Tests that take many seconds are
 * left out, because a bug that only they detect deserves a faster test.
 */
const at = (...names) => names.map((name) => `conformance/tests/${name}.test.ts`);

const DELAYED = "modules/{delayed-state,delayed-state/custom-functions}";
const REFUSALS = [
  "laws/{training-mistakes,beginner-mistakes}-are-refused",
  "laws/refused-calls-leave-layers-unchanged",
  "modules/linear/refusals",
];

const LAYERS = at(
  "modules/{linear,norm,quantized-init,linear/wide,module/names,module/memory,parameter/main-grad}",
  "modules/{recompute/requires-grad,linear/refusals}",
  DELAYED,
  "laws/{gradients-are-derivatives,gradients-of-modules-are-derivatives}",
  "laws/training-steps-equal-plain-arithmetic",
  "laws/{training-mistakes,beginner-mistakes}-are-refused",
  "autocast",
  "recipes/*",
);

export const TESTS = {
  "src/modules": [
    ...LAYERS,
    ...at(
      "gemm/options",
      "modules/{recompute,recompute/training,linear/products,linear/copies,parameter/initial-values}",
      "modules/module/{call-options,caller-objects,checks,peak-memory}",
      "modules/{tensor-parallel,tensor-parallel/**/*}",
      "optimizers/{cast-master-weights,clip-grad-norm}",
      "parallel/fsdp/**/*",
      "quantizers/shard",
      "collectives/group/disagreements",
      "tape/scale-updates",
      "te/modules",
      "laws/{command-sequences-equal-a-plain-model,step-sequences-equal-plain-arithmetic}",
      "laws/{omitted-options-have-documented-defaults,only-optimizers-wait-for-reductions}",
      "laws/refused-calls-leave-layers-unchanged",
      "tape/backward",
    ),
  ],
  "src/recipes": [
    ...at("recipes/*"),
    ...LAYERS,
    ...at("io/checkpoint", "laws/saved-values-are-loaded-equal"),
  ],
  "src/tape": at(
    "modules/{linear,norm,recompute,recompute/training,recompute/requires-grad,parameter/main-grad}",
    "laws/{gradients-are-derivatives,gradients-of-modules-are-derivatives}",
    "laws/{training-mistakes-are-refused,beginner-mistakes-are-refused}",
    "tape/*",
    "tensor/{show,tensor/refusals}",
    DELAYED,
    "autocast",
  ),
  "src/quantizers": at(
    "quantizers/{named,shard/methods,shard/options,quantizer/options,quantizer/option-pairs,quantizer/random-bits}",
    "quantize/{quantize,hadamard,*-quantize,dequantize}",
    "formats/scale-rules",
    "tensor/{quantized,tensor/refusals}",
    "laws/one-concept-has-one-name",
    "te/quantizers",
    "layout/**/*",
  ),
  "src/ops": at(
    "{cast,elementwise,layout,quantize,rows,update}/**/*",
    "gemm/{batched,epilogue,epilogue/fusions,gemm,named-operands,operand,options,plan}",
    "gemm/gemm/{backend-calls,row-amaxes,row-scales,tensor-scales}",
    "gemm/datapath/zero-sums",
    "laws/{invalid-arguments,mismatched-arguments,quantized-tensors}-are-refused*",
    "laws/{omitted-options-have-documented-defaults,empty-tensors-return-at-once}",
    "laws/{integer-arguments-have-exact-limits,beginner-mistakes-are-refused}",
    "quantizers/**/*",
    "tensor/{quantized,tensor/refusals}",
    "tape/backward",
    "ops/*",
    "backends/writes",
  ),
  "src/optimizers": at(
    "optimizers/*",
    "modules/parameter/main-grad",
    "parallel/fsdp/sharded-parameter",
    ...REFUSALS,
    "laws/{failed-calls-keep-no-memory,optimizer-programs}",
    "update/*",
  ),
  "src/autocast.ts": at("autocast", DELAYED, "recipes/*", ...REFUSALS, "modules/linear"),
  "src/parallel": at(
    "parallel/**/*",
    "laws/{failed-calls-keep-no-memory,only-optimizers-wait-for-reductions}",
  ),
  "src/explain": at("explain/**/*", "cli/commands/explain"),
  "src/functional": at(
    "functional/**/*",
    "modules/{activation,dropout,dot-product-attention,embedding,linear,moe,norm,rotary-embedding}",
    "laws/{gradients-are-derivatives,gradients-of-modules-are-derivatives}",
  ),
  "src/collectives": at(
    "collectives/{loopback,plan,devices}",
    "collectives/{devices,group,steps}/*",
    "collectives/processes/{gate,ledger}",
    "parallel/{data,fsdp}/**/*",
    "quantizers/shard/**/*",
    "laws/{invalid-arguments-are-refused,specs-across-ranks}",
  ),
  "src/io": at("io/**/*", "laws/{saved-values-are-loaded-equal,invalid-arguments-are-refused}"),
  "src/backends/wasm": at(
    "backends/*",
    "backends/wasm/**/*",
    "{cast,elementwise,gemm,layout,quantize,rows,update}/**/*",
    "ops/*",
  ),
  "src/backends/steps": at(
    "backends/steps/whole-blocks",
    "laws/named-arguments-arrive-in-their-slots",
    "{quantize,quantizers}/**/*",
    "gemm/epilogue/fusions",
  ),
  "src/dialects": at(
    "dialects/**/*",
    "witness/dialects",
    "cli/commands/{dialects,identify}",
    "playground/reference",
  ),
  "src/random.ts": at("core/random", "modules/parameter/initial-values", "ops/create"),
  "src/tensor": at(
    "{layout,ops,quantize,quantizers,tape,tensor}/**/*",
    "backends/*",
    "laws/{invalid,mismatched,hostile}-arguments-are-refused",
    ...REFUSALS,
  ),
};
