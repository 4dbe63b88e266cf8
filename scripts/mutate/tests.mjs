/**
 * The tests to run for each folder: its own tests, and those of the code built on it. Tests that take many seconds are
 * left out, because a bug that only they detect deserves a faster test.
 */
const at = (...names) => names.map((name) => `conformance/tests/${name}.test.ts`);

const LAYERS = at(
  "modules/{linear,norm,names,main-grads,gradients,memory,quantized-model,quantized-outside}",
  "modules/{recompute-requires,refusals,refusals-functions,refusals-plain}",
  "training/{delayed,delayed-host,model,regions,recipes}",
  "recipes/*",
);

export const TESTS = {
  "src/modules": [
    ...LAYERS,
    ...at(
      "gemm/options",
      "modules/{asked,calls,checked,copies,given,initial,master-weights,recompute,refusals-state,released}",
      "modules/tensor-parallel/*",
      "parallel/fsdp/*",
      "training/{recompute,scale-updates,state,turns}",
      "te/modules",
      "api/{defaults,tape}",
    ),
  ],
  "src/recipes": [...at("recipes/*"), ...LAYERS, ...at("io/{roundtrip,checkpoint}")],
  "src/tape": at(
    "modules/{linear,norm,recompute,recompute-requires,main-grads,gradients,refusals-functions,refusals-plain}",
    "api/{tape,differentiable,show,tensor-arguments}",
    "training/{delayed,hooks,recompute,regions,scale-updates,uses}",
  ),
  "src/quantizers": at(
    "quantize/{classes,named,options,quantize,quantized-tensor,hadamard,*-quantize,dequantize}",
    "quantize/{random-bits,scale-rules,shard-methods,shard-options}",
    "api/{names,tensor-arguments}",
    "te/quantizers",
    "layout/*",
  ),
  "src/ops": at(
    "{cast,elementwise,layout,quantize,rows,update}/*",
    "gemm/{asked,batched,epilogue,fused,gemm,named-operands,options,parts,plan,quantized-operands,scaled-operands}",
    "gemm/{row-amaxes,row-scales,tensor-scales,zero-sums}",
    "api/{arguments,checks,create,defaults,empty,limits,tape,tensor-arguments}",
    "backends/{graph,outputs,overlap,side-stream,writes}",
    "modules/refusals-plain",
  ),
  "src/optimizers": at("modules/{optimizers,main-grads,refusals*}", "laws/optimizer-programs", "update/*"),
  "src/autocast.ts": at("training/{regions,recipes,delayed}", "recipes/*", "modules/{refusals*,linear}"),
  "src/parallel": at("parallel/data/data-parallel", "parallel/fsdp/turns"),
  "src/collectives": at(
    "collectives/{loopback,plan,devices}",
    "parallel/data/data-parallel",
    "api/arguments",
  ),
  "src/io": at("io/*", "io/sharded/*", "api/arguments"),
  "src/backends/wasm": at("backends/*", "{cast,elementwise,gemm,layout,quantize,rows,update}/*"),
  "src/backends/steps": at("backends/{whole-blocks,calls}", "quantize/*", "gemm/fused"),
  "src/dialects": at("dialects/*", "witness/dialects", "cli/{dialects,identify}", "playground/reference"),
  "src/random.ts": at("core/random", "modules/initial", "api/create"),
  "src/tensor": at("api/*", "layout/*", "quantize/*", "backends/*", "modules/refusals*"),
};
