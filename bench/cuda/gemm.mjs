// Products through the public interface, held against the same cuBLASLt algorithm enqueued in a C++ loop, in the same rounds, and
// against PyTorch, where python3 has it, after them. A GPU that multiplies is slowed by its power limit, by what it did just
// before: each round has an order of its own, and many short rounds compare where few long ones do not.
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
import { median } from "../timing.mjs";
import { randomBf16 } from "./device.mjs";
import { loopOf } from "./gemm-loop.mjs";
import { shuffled } from "./timing.mjs";

/** M, N, K. */
const SHAPES = [
  [8192, 8192, 8192],
  [4096, 7168, 16384],
];
/** Products of one run, enqueued before any is waited for. */
const REPEAT = 16;
/** Rounds until the clocks have settled. */
const UNCOUNTED = 5;
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

/** The median seconds of each run. */
function measure(runs, wait, rounds) {
  const seconds = runs.map(() => []);
  for (let round = -UNCOUNTED; round < rounds; round++) {
    for (const i of shuffled([...runs.keys()])) {
      wait();
      const start = performance.now();
      runs[i]();
      wait();
      if (round >= 0) seconds[i].push((performance.now() - start) / 1000);
    }
  }
  return seconds.map(median);
}

/** Seconds of PyTorch's products by name; none where there is no PyTorch with a GPU. */
function torchSeconds() {
  const shapes = SHAPES.map((shape) => shape.join("x"));
  const { status, stdout } = spawnSync("python3", [TORCH, ...shapes], { encoding: "utf8" });
  if (status !== 0) return new Map();
  return new Map(JSON.parse(stdout).rows.map(({ name, seconds }) => [name, seconds]));
}

function measureShape(backend, wait, rounds, shape) {
  const scope = new Scope();
  const products = operands(backend, shape).map(({ name, isStaged, ...options }) => {
    const { out } = gemm({ ...options, outDtype: "bf16" });
    const once = () => {
      const inner = new Scope();
      gemm({ ...options, out });
      inner.dispose();
    };
    const run = () => {
      for (let i = 0; i < REPEAT; i++) once();
    };
    // a staged product reads temporaries, which are gone afterwards
    const loop = isStaged ? undefined : loopOf(once);
    return { name: `${name} ${shape.join("x")}`, run, isStaged, loop };
  });
  const runs = products.flatMap(({ run, loop }) => (loop ? [run, () => loop(REPEAT)] : [run]));
  const times = measure(runs, wait, 3 * rounds).map((seconds) => seconds / REPEAT);
  scope.dispose();
  return products.map(({ name, isStaged, loop }) => {
    const seconds = times.shift();
    return { name, isStaged, seconds, loop: loop && times.shift() };
  });
}

export function gemmRows(backend, wait, rounds) {
  const measured = SHAPES.map((shape) => measureShape(backend, wait, rounds, shape));
  wait();
  const torch = torchSeconds();
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
