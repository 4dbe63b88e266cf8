// Products through the public interface, compared with the same cuBLASLt algorithm enqueued in a C++ loop in the same
// rounds, and afterwards with PyTorch, if python3 has it. The power limit slows a GPU that multiplies, depending on its
// previous work. Each round therefore has another order, and rounds are many and short.
import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import {
  Float8BlockQuantizer,
  Float8CurrentScalingQuantizer,
  gemm,
  MXFP8Quantizer,
  NVFP4Quantizer,
  Scope,
} from "lockstep";
import { randomBf16 } from "./device.mjs";
import { loopOf } from "./gemm-loop.mjs";
import { measureDevice } from "./timing.mjs";

/** Sizes M, N, K. */
const SHAPES = [
  [8192, 8192, 8192],
  [4096, 7168, 16384],
];
/** The number of uncounted rounds at the beginning, until the clocks are stable. */
const UNCOUNTED = 5;
/** Weights N, K, of layers and larger than a cache, and the numbers of rows that a step of a rollout multiplies. */
const WEIGHTS = [
  [6144, 4096],
  [4096, 14336],
  [28672, 4096],
];
const FEW_ROWS = [1, 8, 32, 64, 256];
const OF_LOOP = 0.98;
const OF_BF16 = 0.85;
const TORCH = fileURLToPath(new URL("torch_gemm.py", import.meta.url));

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
    { name: "mxfp8 (to bf16 on Hopper)", ...both(new MXFP8Quantizer()), isStaged: true },
    { name: "nvfp4 (to bf16 on Hopper)", ...both(new NVFP4Quantizer()), isStaged: true },
  ];
}

/** The seconds per product in PyTorch, by name; empty without PyTorch or a GPU in it. */
function torchSeconds(shapes, options = []) {
  const titles = shapes.map((shape) => shape.join("x"));
  const { status, stdout } = spawnSync("python3", [TORCH, ...options, ...titles], { encoding: "utf8" });
  if (status !== 0) return new Map();
  return new Map(JSON.parse(stdout).rows.map(({ name, seconds }) => [name, seconds]));
}

function measureShape(backend, wait, rounds, shape) {
  const scope = new Scope();
  const products = operands(backend, shape).map(({ name, isStaged, ...options }) => {
    const { out } = gemm({ ...options, outDtype: "bf16" });
    const run = () => {
      const inner = new Scope();
      gemm({ ...options, out });
      inner.dispose();
    };
    // a staged product reads temporaries, which are freed after the call, so it cannot be repeated in a loop
    const loop = isStaged ? undefined : loopOf(run);
    return { name: `${name} ${shape.join("x")}`, run, isStaged, loop };
  });
  const cases = products.flatMap(({ run, loop }) => (loop ? [{ run }, { repeat: loop }] : [{ run }]));
  const times = measureDevice(cases, wait, 3 * rounds, UNCOUNTED);
  scope.dispose();
  return products.map(({ name, isStaged, loop }) => {
    const seconds = times.shift().median;
    return { name, isStaged, seconds, loop: loop && times.shift().median };
  });
}

export function gemmRows(backend, wait, rounds) {
  const measured = SHAPES.map((shape) => measureShape(backend, wait, rounds, shape));
  wait();
  const torch = torchSeconds(SHAPES);
  return measured.flatMap((products, i) => {
    const operations = 2 * SHAPES[i].reduce((product, size) => product * size, 1);
    const [bf16] = products;
    return products.map(({ name, isStaged, seconds, loop }) => ({
      name,
      "TFLOP/s": operations / seconds / 1e12,
      "of a C++ loop": loop && loop / seconds,
      "of PyTorch": torch.has(name) ? torch.get(name) / seconds : undefined,
      "of bf16": bf16.seconds / seconds,
      wanted: isStaged ? `${OF_BF16} of bf16` : `${OF_LOOP} of the loop`,
    }));
  });
}

/**
 * The price of one chain along K: products of few rows with the default plan, with any number of splits in a known order, and in
 * PyTorch, which lets cuBLASLt choose.
 */
export function rolloutRows(backend, wait, rounds) {
  const shapes = WEIGHTS.flatMap(([n, k]) => FEW_ROWS.map((m) => [m, n, k]));
  const measured = shapes.map((shape) => {
    const [m, n, k] = shape;
    const scope = new Scope();
    const operands = { b: randomBf16(backend, [m, k], 1), a: randomBf16(backend, [n, k], 2) };
    const cases = [1, "auto"].map((splitK) => {
      const { out, plan } = gemm({ ...operands, splitK });
      return { plan, repeat: loopOf(() => gemm({ ...operands, splitK, out })) };
    });
    const [chain, splits] = measureDevice(cases, wait, rounds, UNCOUNTED).map(({ median }) => median);
    scope.dispose();
    return { shape, chain, splits, splitK: cases[1].plan.splitK };
  });
  wait();
  const torch = torchSeconds(shapes, ["--only", "bf16"]);
  return measured.map(({ shape, chain, splits, splitK }) => {
    const title = shape.join("x");
    const library = torch.get(`bf16 ${title}`);
    return {
      "bf16, M x N x K": title,
      "one chain, µs": chain * 1e6,
      "splitK auto, µs": splits * 1e6,
      "number of splits": String(splitK),
      "PyTorch, µs": library && library * 1e6,
      "auto / one chain": splits / chain,
      "PyTorch / one chain": library && library / chain,
    };
  });
}
