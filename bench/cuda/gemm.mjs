// Products through the public interface, held against the same cuBLASLt algorithm enqueued in a C++ loop, in the same rounds.
import {
  Float8BlockQuantizer,
  Float8CurrentScalingQuantizer,
  gemm,
  MXFP8Quantizer,
  NVFP4Quantizer,
  Scope,
} from "lockstep";
import { randomBf16 } from "./device.mjs";
import { measureDevice } from "./timing.mjs";

/** M, N, K. */
const SHAPES = [
  [8192, 8192, 8192],
  [4096, 7168, 16384],
];

function operands(backend, [m, n, k]) {
  const x = randomBf16(backend, [m, k], 1);
  const w = randomBf16(backend, [n, k], 2);
  const both = (quantizer) => ({ b: quantizer.quantize(x), a: quantizer.quantize(w) });
  const fp8 = both(new Float8CurrentScalingQuantizer());
  const ready = { scaleLayout: "padded" };
  const block = {
    b: new Float8BlockQuantizer(ready).quantize(x),
    a: new Float8BlockQuantizer({ ...ready, tile: "128x128" }).quantize(w),
  };
  return [
    { name: "bf16", a: w, b: x },
    { name: "fp8 fast", ...fp8 },
    { name: "fp8 split accumulator", ...fp8, useSplitAccumulator: true },
    { name: "fp8-block 1x128, 128x128", ...block },
    { name: "mxfp8 (to bf16 on Hopper)", ...both(new MXFP8Quantizer()), ofBf16: 0.85 },
    { name: "nvfp4 (to bf16 on Hopper)", ...both(new NVFP4Quantizer()), ofBf16: 0.85 },
  ];
}

export function gemmRows(backend, wait, rounds) {
  return SHAPES.flatMap((shape) => {
    const scope = new Scope();
    const [m, n, k] = shape;
    const cases = operands(backend, shape).map(({ name, ofBf16, ...options }) => {
      const { out } = gemm({ ...options, outDtype: "bf16" });
      const run = () => {
        const inner = new Scope();
        gemm({ ...options, out });
        inner.dispose();
      };
      return { name: `${name} ${m}x${n}x${k}`, ofBf16, run };
    });
    const times = measureDevice(cases, wait, Math.ceil(rounds / 2));
    scope.dispose();
    const rate = (i) => (2 * m * n * k) / times[i].median / 1e12;
    return cases.map(({ name, ofBf16 }, i) => ({
      name,
      "TFLOP/s": rate(i),
      "of bf16": rate(i) / rate(0),
      wanted: ofBf16,
    }));
  });
}
