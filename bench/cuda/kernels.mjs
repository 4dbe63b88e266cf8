// Memory-bound kernels: the bytes that the definition needs for bf16 input, compared with a device-to-device copy of the
// same run.
import {
  columnSum,
  Float8BlockQuantizer,
  Float8CurrentScalingQuantizer,
  Float8Quantizer,
  layerNorm,
  MXFP8Quantizer,
  NVFP4Quantizer,
  normBackward,
  rmsNorm,
  Scope,
  tensor,
  transpose,
} from "lockstep";
import { randomBf16 } from "./device.mjs";

export const SIZES = [
  [8192, 8192],
  [16384, 4096],
];

const BOTH = { rowwise: true, columnwise: true };
const SWIZZLED = { ...BOTH, scaleLayout: "swizzled" };

/**
 * Quantizers with their name, bytes per element (read and written, including scales), and the required share of a copy's speed.
 */
function quantizers(backend) {
  const scale = tensor(backend, [1]);
  const delayed = { scale, amax: tensor(backend, [0]) };
  const row = (name, quantizer, bytes, wanted = 0.85) => ({ name, quantizer, bytes, wanted });
  return [
    row("fp8 delayed", new Float8Quantizer(delayed), 2 + 1),
    row("fp8 current", new Float8CurrentScalingQuantizer(), 2 + 2 + 1),
    row("fp8-block 1x128", new Float8BlockQuantizer(), 2 + 1 + 4 / 128),
    row("fp8-block 128x128", new Float8BlockQuantizer({ tile: "128x128" }), 2 + 1 + 4 / 16384),
    row("mxfp8", new MXFP8Quantizer(), 2 + 1 + 1 / 32),
    row("nvfp4 1x16", new NVFP4Quantizer(), 2 + 2 + 1 / 2 + 1 / 16),
    row("nvfp4 16x16", new NVFP4Quantizer({ tile: "16x16" }), 2 + 2 + 1 / 2 + 1 / 16),
    row("fp8 delayed, both", new Float8Quantizer({ ...delayed, ...BOTH }), 2 + 2, 0.75),
    row("fp8 current, both", new Float8CurrentScalingQuantizer(BOTH), 2 + 2 + 2, 0.75),
    row("fp8-block 1x128, both", new Float8BlockQuantizer(BOTH), 2 + 2 + 8 / 128, 0.75),
    row("fp8-block 128x128, both", new Float8BlockQuantizer({ ...BOTH, tile: "128x128" }), 2 + 2, 0.75),
    row("mxfp8, both", new MXFP8Quantizer(BOTH), 2 + 2 + 2 / 32, 0.75),
    row("nvfp4 1x16, both", new NVFP4Quantizer(BOTH), 2 + 2 + 1 + 2 / 16, 0.75),
    row("nvfp4 1x16, both, swizzled scales", new NVFP4Quantizer(SWIZZLED), 2 + 2 + 1 + 2 / 16, 0.75),
    row("nvfp4 16x16, both", new NVFP4Quantizer({ ...BOTH, tile: "16x16" }), 2 + 2 + 1 + 2 / 16, 0.75),
    row(
      "nvfp4 1x16, both, RHT, stochastic",
      new NVFP4Quantizer({ ...BOTH, rht: true, stochastic: true }),
      2 + 2 + 1 + 2 / 16,
      0.65,
    ),
  ];
}

/** The cases of one size. run(i) cycles through several inputs, so that no input is still in a cache. */
export function kernelCases(backend, [rows, columns]) {
  const inputs = [1, 2, 3].map((seed) => randomBf16(backend, [rows, columns], seed));
  const input = (i) => inputs[i % inputs.length];
  const elements = rows * columns;
  const size = `${rows}x${columns}`;
  const made = quantizers(backend).map(({ name, quantizer, bytes, wanted }) => {
    const target = quantizer.makeEmpty(backend, [rows, columns], "bf16");
    const run = (i) => quantizer.updateQuantized(input(i), target);
    return { name: `${name} ${size}`, bytes: bytes * elements, wanted, run, target };
  });
  const scoped = (body) => (i) => {
    const scope = new Scope();
    body(input(i), input(i + 1));
    scope.dispose();
  };
  const dequantizers = made
    .filter(({ name }) => !name.includes("both"))
    .map(({ name, bytes, target }) => ({
      name: `dequantize ${name}`,
      bytes: name.includes("current") || name.includes("nvfp4") ? bytes - 2 * elements : bytes,
      wanted: 0.85,
      run: scoped(() => target.dequantize("bf16")),
    }));
  const [gamma, beta] = [4, 5].map((seed) => randomBf16(backend, [columns], seed));
  const scaling = { scale: tensor(backend, [1]), amax: tensor(backend, [0]) };
  const [delayed, both] = [{}, BOTH].map((usage) => new Float8Quantizer({ ...scaling, ...usage }));
  const [current, block] = [new Float8CurrentScalingQuantizer(BOTH), new Float8BlockQuantizer(BOTH)];
  const { mean, rstd } = layerNorm(inputs[0], gamma, beta, { eps: 1e-5 });
  const others = [
    { name: "layerNorm", bytes: 4, wanted: 0.9, body: (x) => layerNorm(x, gamma, beta, { eps: 1e-5 }) },
    { name: "rmsNorm", bytes: 4, wanted: 0.9, body: (x) => rmsNorm(x, gamma, { eps: 1e-5 }) },
    {
      name: "rmsNorm, fp8 delayed",
      bytes: 2 + 1,
      wanted: 0.85,
      body: (x) => delayed.normQuantize(x, { gamma }),
    },
    { name: "rmsNorm, fp8 delayed, both", bytes: 2 + 2, body: (x) => both.normQuantize(x, { gamma }) },
    { name: "fp8 delayed, both, bias gradient", bytes: 2 + 2, body: (x) => both.biasGradQuantize(x) },
    { name: "fp8 current, both, bias gradient", bytes: 2 + 2 + 2, body: (x) => current.biasGradQuantize(x) },
    {
      name: "fp8-block 1x128, both, bias gradient",
      bytes: 2 + 2 + 8 / 128,
      body: (x) => block.biasGradQuantize(x),
    },
    { name: "columnSum", bytes: 2, body: (x) => columnSum(x) },
    {
      name: "normBackward",
      bytes: 6,
      wanted: 0.8,
      body: (x, grad) => normBackward({ grad, x, gamma, mean, rstd }),
    },
    { name: "transpose", bytes: 4, wanted: 0.85, body: (x) => transpose(x) },
  ].map(({ name, bytes, wanted, body }) => ({
    name: `${name} ${size}`,
    bytes: bytes * elements,
    wanted,
    run: scoped(body),
  }));
  return [...made, ...dequantizers, ...others].map(({ name, bytes, wanted, run }) => ({
    name,
    bytes,
    wanted,
    run,
  }));
}
