/** Integer arguments are accepted up to both ends of their range, and refused beyond, with the range in the message. */
import { expect, it } from "vitest";
import { ArgumentError } from "../../../src/errors.js";
import { sweepChunk } from "../../../src/ops/cast/sweep.js";
import { zeros } from "../../../src/ops/create.js";
import { gemm } from "../../../src/ops/gemm/gemm.js";
import { hadamard } from "../../../src/ops/quantize/hadamard.js";
import { embedding, embeddingBackward } from "../../../src/ops/rows/embedding.js";
import { crossEntropy, crossEntropyBackward } from "../../../src/ops/rows/loss.js";
import { updateScales } from "../../../src/ops/update/delayed-scaling.js";
import { adamw } from "../../../src/ops/update/optimizer.js";
import { Scope } from "../../../src/tensor/scope.js";
import { useBackend } from "../harness/suite.js";

const backend = useBackend();
const f32 = (...shape: readonly number[]) => zeros(backend(), "f32", shape);
const i32 = (...shape: readonly number[]) => zeros(backend(), "i32", shape);
/** The inputs of a gradient of one row. */
const row = (columns: number) => {
  const scalars = { grad: f32(1), maximum: f32(1), total: f32(1) };
  return { ...scalars, logits: f32(1, columns), targets: i32(1) };
};

interface Range {
  readonly min: number;
  /** The maximum; undefined if there is none. */
  readonly max?: number;
  readonly call: (value: number) => unknown;
  /** A slow call whose range other tests reach. */
  readonly costly?: boolean;
}

const INDEX = { min: 0, max: 2 ** 31 - 1 };
const COUNT = { min: 0, max: 2 ** 31 };
const STEP = { learningRate: 1 };
const SWEEP = { format: "e4m3", rounding: "tiesToEven", overflow: "saturate" } as const;

const RANGES: Readonly<Record<string, Range>> = {
  "hadamard: signs": {
    ...{ min: 0, max: 2 ** 16 - 1 },
    call: (signs) => hadamard(zeros(backend(), "bf16", [16, 16]), signs),
  },
  "embedding: first": { ...INDEX, call: (first) => embedding(f32(1, 1), i32(1), { first }) },
  "embedding: vocabulary": {
    ...COUNT,
    call: (vocabulary) => embedding(f32(0, 1), i32(1), { vocabulary }),
  },
  "embeddingBackward: first": {
    ...INDEX,
    call: (first) => embeddingBackward(f32(1, 1), i32(1), 1, { first }),
  },
  "embeddingBackward: vocabulary": {
    ...COUNT,
    call: (vocabulary) => embeddingBackward(f32(1, 0), i32(1), vocabulary),
  },
  "crossEntropy: ignore": {
    ...{ min: -(2 ** 31), max: 2 ** 31 - 1 },
    call: (ignore) => crossEntropy(f32(1, 1), i32(1), { ignore }),
  },
  "crossEntropyBackward: first": { ...INDEX, call: (first) => crossEntropyBackward(row(1), { first }) },
  "crossEntropyBackward: classes": {
    ...COUNT,
    call: (classes) => crossEntropyBackward(row(0), { classes }),
  },
  "updateScales: margin": {
    ...{ min: -256, max: 256 },
    call: (margin) => {
      const formatMax = margin > 0 ? 2 ** 127 : 2 ** -149;
      updateScales({ amaxHistory: f32(1, 1), scale: f32(1), formatMax, margin });
    },
  },
  "adamw: step": {
    min: 1,
    call: (step) => adamw({ parameter: f32(1), grad: f32(1), m: f32(1), v: f32(1) }, { ...STEP, step }),
  },
  "gemm: splitK": {
    min: 1,
    call: (splitK) => gemm({ x: f32(1, 1), w: f32(1, 1), datapath: "fp32", splitK }),
  },
  "sweepChunk: chunk": {
    ...{ min: 0, max: 255, costly: true },
    call: (chunk) => sweepChunk(backend(), chunk, SWEEP),
  },
};

it.each(Object.entries(RANGES))("%s", async (name, { min, max, costly, call }) => {
  const expectRefused = async (value: number): Promise<void> => {
    using _scope = new Scope();
    const error = await Promise.resolve(value)
      .then(call)
      .catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(ArgumentError);
    const range = max === undefined ? `from ${min}` : `from ${min} to ${max}`;
    expect((error as Error).message).toBe(`${name} is ${value}; it must be a whole number ${range}`);
  };
  for (const value of [min - 1, ...(max === undefined ? [] : [max + 1])]) await expectRefused(value);
  if (costly) return;
  using _scope = new Scope();
  for (const value of [min, max ?? min]) expect(() => call(value), String(value)).not.toThrow();
});
