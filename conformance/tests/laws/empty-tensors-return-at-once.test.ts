/** Empty tensors whose other dimension exceeds any kernel's index type: every operation returns or throws at once. */
import * as fc from "fast-check";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { OpName } from "../../../src/backends/ops.js";
import { type Job, Pool } from "../../../src/backends/wasm/pool.js";
import { TENSOR_ROWS } from "../../../src/backends/writes.js";
import { LockstepError, OutOfMemoryError } from "../../../src/errors.js";
import { BLOCK_FORMAT_NAMES, blockFormat } from "../../../src/formats/block.js";
import * as lockstep from "../../../src/index.js";
import { empty, tensor, zeros } from "../../../src/ops/create.js";
import { execute } from "../../../src/ops/execute.js";
import { batchedGemm } from "../../../src/ops/gemm/batched.js";
import { gemm } from "../../../src/ops/gemm/gemm.js";
import { concatenate, expand, slice } from "../../../src/ops/layout/copy-slice.js";
import { relayoutScales, swapAxes, transpose } from "../../../src/ops/layout/layout.js";
import { embedding, embeddingBackward } from "../../../src/ops/rows/embedding.js";
import { combineRows, rowDots, rowIdMap, takeRows } from "../../../src/ops/rows/expert-rows.js";
import { gather, gatherBackward } from "../../../src/ops/rows/gather.js";
import { lossMaximum, lossOfSums, lossSums } from "../../../src/ops/rows/loss-parts.js";
import { rotaryEmbedding } from "../../../src/ops/rows/rotary-embedding.js";
import { topk } from "../../../src/ops/rows/topk.js";
import { updateScales } from "../../../src/ops/update/delayed-scaling.js";
import { quantizerNamed } from "../../../src/quantizers/named.js";
import { NVFP4Quantizer } from "../../../src/quantizers/nvfp4.js";
import type { Quantizer } from "../../../src/quantizers/quantizer.js";
import type { QuantizedTensor, ScaleLayout } from "../../../src/tensor/quantized.js";
import { Scope } from "../../../src/tensor/scope.js";
import { asMatrix, type DType, type Shape } from "../../../src/tensor/shape.js";
import type { Tensor } from "../../../src/tensor/tensor.js";
import { readDeclarations } from "../harness/arguments/declared.js";
import { completeRows } from "../harness/arguments/derived.js";
import { OPERATION_ROWS } from "../harness/arguments/rows-ops.js";
import { World } from "../harness/arguments/world.js";
import { draws } from "../harness/draws.js";
import { useBackend } from "../harness/suite.js";

const backend = useBackend({ threads: 2 });

/** The maximum number of work units that a test requests of one job. More would take long whatever the memory. */
const MAX_UNITS = 2 ** 20;

afterEach(() => vi.restoreAllMocks());
beforeEach(() => {
  const { run } = Pool.prototype;
  vi.spyOn(Pool.prototype, "run").mockImplementation(function (this: Pool, name, job: Job, args) {
    if (!(job.total <= MAX_UNITS)) throw new Error(`${name} was asked for ${job.total} units of work`);
    for (const arg of Object.values<number | boolean>(args))
      if (Number.isInteger(arg) && Math.abs(Number(arg)) > 2 ** 32)
        throw new Error(`${name} was given ${arg}`);
    return run.call(this, name, job, args);
  });
});

const emptyTensor = <D extends DType>(dtype: D, shape: Shape): Tensor<D> => empty(backend(), dtype, shape);
const bf16 = (shape: Shape) => emptyTensor("bf16", shape);
const f32 = (shape: Shape) => emptyTensor("f32", shape);
const double = (shape: Shape): Shape => [...shape.slice(0, -1), 2 * (shape.at(-1) as number)];

const LAYOUTS: readonly ScaleLayout[] = ["logical", "padded", "swizzled"];

/** Every quantizer, with both copies, in every layout that it has. */
function quantizers(): readonly Quantizer[] {
  const pair = tensor(backend(), [2]);
  return LAYOUTS.flatMap((scaleLayout) => {
    const options = { columnwise: true, scaleLayout };
    const scaleOptions = { ...options, scale: pair, amax: tensor(backend(), [0]) };
    const names = BLOCK_FORMAT_NAMES.filter(
      (name) => scaleLayout !== "swizzled" || blockFormat(name).padding === "tiles",
    ).flatMap((name) =>
      blockFormat(name).tiles.map((tile) => quantizerNamed(name, { ...scaleOptions, tile })),
    );
    return [...names, new NVFP4Quantizer({ ...options, rht: true })];
  });
}

/** Calls `use` with every quantizer. Anything it throws must be an error of this library. */
function forEachQuantizer(use: (quantizer: Quantizer) => unknown): void {
  for (const quantizer of quantizers()) attempt(() => use(quantizer));
}

/** Runs `body`. It may throw an error of this library, but no other. */
function attempt(body: () => unknown): unknown {
  try {
    return body();
  } catch (error) {
    if (error instanceof LockstepError) return error;
    throw error;
  }
}

/** Operations for which the rows of arguments do not determine how tensor sizes depend on one shape. */
const OWN: { readonly [K in OpName]?: (shape: Shape) => void } = {
  activationQuantize: (shape) => {
    forEachQuantizer((quantizer) => quantizer.activationQuantize(bf16(shape), { kind: "gelu" }));
    forEachQuantizer((quantizer) =>
      quantizer.activationQuantize(bf16(double(shape)), { kind: "silu", gated: true }),
    );
    forEachQuantizer((quantizer) =>
      quantizer.activationQuantize(bf16(double(shape)), { kind: "silu", gated: true, grad: bf16(shape) }),
    );
  },
  amax: (shape) => {
    const out = f32([1]);
    execute(backend(), "amax", { x: bf16(shape), out });
    expect(out.dataSync()).toEqual(Float32Array.of(0));
  },
  biasGradQuantize: (shape) => forEachQuantizer((quantizer) => quantizer.biasGradQuantize(bf16(shape))),
  dequantize: (shape) => {
    forEachQuantizer((quantizer) => {
      const quantizedTensor = quantizer.quantize(bf16(shape));
      quantizedTensor.dequantize();
      quantizedTensor.updateUsage({ rowwise: false }).dequantize();
    });
  },
  gather: (shape) => {
    for (const axis of shape.keys()) {
      const ids = (size: number) =>
        emptyTensor(
          "i32",
          shape.map((length, i) => (i === axis ? size : length)),
        );
      gather(bf16(shape), axis, ids(0));
      gather(bf16(shape), axis, ids(2));
    }
  },
  gatherBackward: (shape) => {
    for (const axis of shape.keys()) {
      gatherBackward(bf16(shape), axis, emptyTensor("i32", shape), 0);
      gatherBackward(bf16(shape), axis, emptyTensor("i32", shape), 2);
    }
  },
  rowIdMap: (shape) => {
    const map = emptyTensor("i32", asMatrix(shape));
    attempt(() => rowIdMap(map, { numOutTokens: 2 }));
    attempt(() => rowIdMap(map, { numOutTokens: 0, numExperts: 3 }));
  },
  topk: (shape) => {
    attempt(() => topk(bf16(asMatrix(shape)), 1));
    attempt(() => topk(bf16(asMatrix(shape)), 2, { numGroups: 2, groupTopk: 1 }));
  },
  takeRows: (shape) => {
    attempt(() => takeRows(bf16(asMatrix(shape)), emptyTensor("i32", [0])));
    attempt(() => takeRows(bf16(asMatrix(shape)), emptyTensor("i32", [2]), { entriesPerRow: 2 }));
  },
  combineRows: (shape) => {
    const [rows, columns] = asMatrix(shape);
    attempt(() => combineRows(bf16([rows, columns]), emptyTensor("i32", [0, 2])));
    attempt(() => combineRows(bf16([rows, columns]), emptyTensor("i32", [2, 0])));
    attempt(() => combineRows(bf16([2, 2]), emptyTensor("i32", [rows, columns])));
  },
  rowDots: (shape) => {
    const [rows, columns] = asMatrix(shape);
    attempt(() => rowDots(bf16([0, columns]), bf16([rows, columns]), emptyTensor("i32", [0, 2])));
    attempt(() => rowDots(bf16([2, columns]), bf16([rows, columns]), emptyTensor("i32", [2, 1])));
    attempt(() => rowDots(bf16([rows, 2]), bf16([2, 2]), emptyTensor("i32", [rows, columns])));
  },
  embedding: (shape) => {
    const [rows, columns] = asMatrix(shape);
    attempt(() => embedding(bf16([rows, columns]), emptyTensor("i32", [0])));
    attempt(() => embedding(bf16([rows, columns]), emptyTensor("i32", [3])));
    attempt(() => embedding(bf16([0, columns]), emptyTensor("i32", [rows])));
    attempt(() => embedding(bf16([3, columns]), emptyTensor("i32", [rows])));
  },
  embeddingBackward: (shape) => {
    const [rows, columns] = asMatrix(shape);
    attempt(() => embeddingBackward(bf16([rows, columns]), emptyTensor("i32", [rows]), 0));
    attempt(() => embeddingBackward(bf16([0, columns]), emptyTensor("i32", [0]), rows));
    attempt(() => embeddingBackward(bf16([3, columns]), zeros(backend(), "i32", [3]), rows));
  },
  gemm: (shape) => {
    const [rows, columns] = asMatrix(shape);
    for (const [m, n, k] of [
      [rows, columns, 0],
      [rows, 0, columns],
      [0, rows, columns],
      [rows, 0, 0],
      [0, rows, 0],
      [0, 0, rows],
      [0, 0, columns],
    ] as const) {
      for (const outDtype of ["f32", "e4m3"] as const)
        attempt(() =>
          gemm({
            a: emptyTensor("e4m3", [m, k]),
            b: emptyTensor("e4m3", [n, k]),
            datapath: "hopper",
            outDtype,
          }),
        );
      attempt(() =>
        gemm({
          a: emptyTensor("f32", [k, m]),
          b: emptyTensor("f32", [k, n]),
          layout: "NT",
          datapath: "fp32",
        }),
      );
      for (const batch of [rows, columns])
        attempt(() => batchedGemm({ a: bf16([batch, m, k]), b: bf16([batch, n, k]), datapath: "fp32" }));
    }
  },
  rotaryEmbedding: (shape) => {
    const [rows, columns] = asMatrix(shape);
    for (const [batch, length, heads] of [
      [rows, columns, 1],
      [1, rows, columns],
      [1, columns, rows],
    ] as const)
      for (const pairs of [0, 2]) {
        const tables = f32([3, pairs]);
        attempt(() => rotaryEmbedding(bf16([batch, length, heads, 8]), tables, tables));
        attempt(() => rotaryEmbedding(bf16([batch, length, heads, 2 * pairs]), tables, tables));
      }
    attempt(() => rotaryEmbedding(bf16([rows, columns, 1, 4]), f32([0, 2]), f32([0, 2])));
  },
  lossMaximum: (shape) => lossMaximum(bf16(shape)),
  lossOfSums: (shape) => {
    const [rows] = asMatrix(shape);
    lossOfSums(f32([2, rows]), emptyTensor("i32", [rows]), { classes: 3 });
  },
  lossSums: (shape) => {
    const [rows] = asMatrix(shape);
    const terms = { logits: bf16(shape), targets: emptyTensor("i32", [rows]), maximum: f32([rows]) };
    lossSums(terms, { first: 0 });
  },
  normQuantize: (shape) => {
    forEachQuantizer((quantizer) =>
      quantizer.normQuantize(bf16(shape), { gamma: f32([asMatrix(shape)[1]]) }),
    );
  },
  pieceSums: (shape) => execute(backend(), "pieceSums", { x: bf16(shape), sums: f32([0]) }),
  quantize: (shape) => {
    forEachQuantizer((quantizer) => {
      const quantizedTensor = attempt(() => quantizer.quantize(bf16(shape)));
      // empty tensors of a huge size are quantized like empty tensors of any other size
      if (quantizedTensor instanceof Error) expect(quantizedTensor).not.toBeInstanceOf(OutOfMemoryError);
      else
        expect(scalars(quantizedTensor as QuantizedTensor)).toEqual(
          scalars(quantizer.quantize(bf16([0, 0]))),
        );
    });
  },
  relayout: (shape) => {
    forEachQuantizer((quantizer) => {
      const quantizedTensor = quantizer.quantize(bf16(shape));
      for (const layout of LAYOUTS) attempt(() => relayoutScales(quantizedTensor, "columnwise", layout));
    });
  },
  swapAxes: (shape) => {
    for (const axis of shape.keys()) swapAxes(bf16(shape), axis, -1);
  },
  copySlice: (shape) => {
    for (const axis of shape.keys()) {
      slice(bf16(shape), axis, 0);
      slice(bf16(shape), axis, 0, 0);
      concatenate([bf16(shape), bf16(shape)], axis);
    }
    expand(bf16(shape), [2, ...shape]);
    expand(bf16([1, 1]), shape);
  },
  transpose: (shape) => {
    transpose(bf16(shape));
    transpose(emptyTensor("e2m1", shape));
  },
  sumPieces: (shape) => execute(backend(), "sumPieces", { sums: f32(shape), out: f32([1]) }),
  updateScales: (shape) => {
    const [length, slots] = asMatrix(shape);
    updateScales({ amaxHistory: f32([length, slots]), scale: f32([slots]), formatMax: 448 });
  },
};

const declarations = readDeclarations("dist/src/index.d.ts");

/** The calls of every operation, from the rows of arguments, on tensors of one shape. */
const CALLS = Object.entries(completeRows(declarations, OPERATION_ROWS))
  .filter(([name, { isSlow }]) => /^[a-z]/.test(name) && !(name in OWN) && !isSlow)
  .flatMap(([name, { calls }]) =>
    calls.map((call, i) => {
      const run = (shape: Shape): unknown => {
        const world = new World(
          { backend: backend(), otherBackend: backend(), disposedBackend: backend() },
          shape,
        );
        return Reflect.apply(Reflect.get(lockstep, name) as () => unknown, undefined, call(world));
      };
      return [`${name}, call ${i}`, run] as const;
    }),
  );

/** The values of the scales and amaxes of a tensor with one element. */
function scalars(quantizedTensor: QuantizedTensor): readonly unknown[] {
  return quantizedTensor.members.filter(({ size }) => size === 1).map((member) => member.dataSync());
}

/**
 * Shapes with two or three dimensions. At least one is zero; the others are small enough to compute with, or exceed
 * memory. Most are multiples that formats accept.
 */
const emptyShape: fc.Arbitrary<Shape> = (() => {
  const scaledBy = (min: number, max: number) =>
    fc
      .tuple(fc.constantFrom(1, 3, 5), fc.integer({ min, max }))
      .map(([a, b]) => Math.min(a * 2 ** b, 2 ** 53 - 128));
  const size = fc.oneof(
    { weight: 2, arbitrary: scaledBy(31, 52) },
    { weight: 1, arbitrary: scaledBy(4, 7) },
    { weight: 1, arbitrary: fc.constantFrom(2 ** 31, 2 ** 32, 2 ** 53 - 1, 2 ** 31 - 1, 0, 1) },
  );
  return fc
    .tuple(fc.array(size, { minLength: 1, maxLength: 2 }), fc.nat(2))
    .map(([sizes, index]) => sizes.toSpliced(Math.min(index, sizes.length), 0, 0));
})();

const EXAMPLES: readonly Shape[] = [
  [0, 2 ** 53 - 1],
  [2 ** 31, 0],
  [0, 2 ** 31],
  [0, 2 ** 45],
  [2 ** 45, 0],
  [0, 0],
  [2 ** 16, 0],
  [0, 2 ** 16],
  [2 ** 16, 0, 2 ** 16],
];

describe("of tensors without elements, however large their other sizes,", () => {
  const ops = new Set<OpName>();
  beforeEach(() => {
    const { supports } = backend();
    vi.spyOn(backend(), "supports").mockImplementation((op, args) => {
      ops.add(op);
      return supports.call(backend(), op, args);
    });
  });

  for (const [name, run] of [...Object.entries(OWN), ...CALLS]) {
    it(`${name} returns or throws at once, and leaks no memory`, () => {
      fc.assert(
        fc.property(emptyShape, (shape) => {
          const memoryBefore = backend().memoryUse();
          {
            using _scope = new Scope();
            attempt(() => run(shape));
          }
          const { live, blocks } = backend().memoryUse();
          expect({ live, blocks }).toEqual({ live: memoryBefore.live, blocks: memoryBefore.blocks });
        }),
        { numRuns: draws(40, EXAMPLES.length + 3), examples: EXAMPLES.map((shape) => [shape]) },
      );
    });
  }

  it("every operation has run, except the one whose sizes are fixed", () => {
    expect([...TENSOR_ROWS.keys()].filter((op) => !ops.has(op))).toEqual(["sweep"]);
  });
});
