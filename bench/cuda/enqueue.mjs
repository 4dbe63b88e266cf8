// The cost of one operation on the host: microseconds until the call returns, while the GPU still works.
import { Float8CurrentScalingQuantizer, gemm, MXFP8Quantizer, Scope } from "lockstep";
import { randomBf16 } from "./device.mjs";
import { measureEnqueue } from "./timing.mjs";

const WANTED = 10;

export function enqueueRows(backend, wait) {
  const x = randomBf16(backend, [128, 128], 1);
  const w = randomBf16(backend, [128, 128], 2);
  const [mx, current] = [new MXFP8Quantizer(), new Float8CurrentScalingQuantizer()];
  const [toMx, toCurrent] = [mx, current].map((quantizer) =>
    quantizer.makeEmpty(backend, [128, 128], "bf16"),
  );
  const [w8, x8] = [w, x].map((source) => current.quantize(source));
  const { out } = gemm({ x, w, outDtype: "bf16" });
  const { out: out8 } = gemm({ x: x8, w: w8, outDtype: "bf16" });
  const inScope = (body) => () => {
    const scope = new Scope();
    body();
    scope.dispose();
  };
  const cases = [
    ["mxfp8 into a tensor", () => mx.updateQuantized(x, toMx)],
    ["fp8 current into a tensor", () => current.updateQuantized(x, toCurrent)],
    ["mxfp8, new tensors", inScope(() => mx.quantize(x))],
    ["gemm bf16 into a tensor", inScope(() => gemm({ x, w, out }))],
    ["gemm fp8 into a tensor", inScope(() => gemm({ x: x8, w: w8, out: out8 }))],
  ];
  return cases.map(([name, run]) => ({
    name: `enqueue ${name}, 128x128`,
    µs: measureEnqueue(run, wait),
    "wanted at most": WANTED,
  }));
}
