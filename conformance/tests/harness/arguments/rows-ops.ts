/** Rows of operations. */

import { Float8BlockQuantizer } from "../../../../src/quantizers/float8-block.js";
import type { QuantizedTensor } from "../../../../src/tensor/quantized.js";
import { GuardedBackend } from "../../../operations/guarded.js";
import { ATTENTION_NUMBERS, attentionOptions, projections, tokenOptions, tokens } from "./attention-calls.js";
import type { DerivedRows } from "./row.js";
import type { World } from "./world.js";

const CLAMP = { limit: 7, alpha: 1.5, offset: 1 };
const CLAMP_NUMBERS = {
  "options.clamp.limit": "atLeastZero",
  "options.clamp.alpha": "finite",
  "options.clamp.offset": "finite",
} as const;
const LAYOUT = {
  exponentBits: 4,
  mantissaBits: 3,
  bias: 7,
  signed: true,
  subnormals: true,
  specials: "nanOnly",
} as const;
const LAYOUT_NUMBERS = {
  "options.format.exponentBits": "count",
  "options.format.mantissaBits": "index",
  "options.format.bias": "integer",
} as const;
const ROTARY = { interleaved: true } as const;
const tokenIds = (world: World) => world.tensor("i32", [world.rows]);
const rowVector = (world: World) => world.tensor("f32", [world.rows]);
const PLAN = { datapath: "hopper-half", splitAccumulator: false, splitK: 1 } as const;
const PLAN_FREE = {
  "options.plan.algorithm": "what an algorithm is made of has tests of its own: tests/gemm/plan.test.ts",
} as const;

/** An operation whose calls are derived from its declaration needs no row, or one without calls (derived.ts). */
export const OPERATION_ROWS: DerivedRows = {
  gated: {
    calls: [(w) => [w.tensor(), { kind: "silu", clamp: CLAMP, outDtype: "f32" }]],
    numbers: CLAMP_NUMBERS,
  },
  gatedBackward: {
    calls: [
      (w) => [
        w.tensor("bf16", [w.rows, w.columns / 2]),
        w.tensor(),
        { kind: "silu", clamp: CLAMP, outDtype: "f32" },
      ],
    ],
    numbers: CLAMP_NUMBERS,
  },
  scaled: { numbers: { factor: "any" } },
  encode: {
    calls: [
      (w) => [
        w.tensor(),
        { format: "e4m3", rounding: "stochastic", overflow: "saturate", seed: 1n, offset: 2n, scale: 1 },
      ],
      (w) => [w.tensor(), { format: LAYOUT }],
      (w) => [w.tensor(), { format: "e4m3", rounding: "stochastic", randomBits: w.tensor("u32") }],
    ],
    numbers: {
      "options.scale": "notNaN",
      ...LAYOUT_NUMBERS,
    },
  },
  decode: {
    calls: [
      (w) => [w.tensor("e4m3"), { format: "e4m3", dtype: "bf16" }],
      (w) => [w.tensor("u8"), { format: LAYOUT }],
    ],
    anyType: ["x"],
    numbers: LAYOUT_NUMBERS,
  },
  updateScales: {
    calls: [
      (w) => [
        {
          amaxHistory: w.tensor("f32", [3, 128]),
          scale: w.tensor("f32", [128]),
          formatMax: 448,
          margin: 1,
          algorithm: "max",
        },
      ],
    ],
    numbers: { "inputs.formatMax": "above", "inputs.margin": "integer" },
    writes: ["inputs.amaxHistory", "inputs.scale"],
  },
  dequantize: { calls: [(w) => [w.quantize(), "f32"]] },
  embedding: {
    calls: [(w) => [w.tensor(), tokenIds(w), { outDtype: "f32", first: 1, vocabulary: 1000 }]],
    numbers: { "options.first": "index", "options.vocabulary": "index" },
  },
  rotaryEmbedding: {
    calls: [
      (w) => [
        w.tensor("bf16", [2, 3, 4, 16]),
        w.tensor("f32", [7, 8]),
        w.tensor("f32", [7, 8]),
        { ...ROTARY, layout: "bshd", inverse: true, outDtype: "f32", startPositions: w.tensor("i32", [2]) },
      ],
      (w) => [
        w.tensor("bf16", [6, 4, 16]),
        w.tensor("f32", [7, 8]),
        w.tensor("f32", [7, 8]),
        { ...ROTARY, layout: "thd", cuSeqlens: w.tensor("i32", [3]), startPositions: w.tensor("i32", [2]) },
      ],
    ],
  },
  embeddingBackward: {
    calls: [(w) => [w.tensor(), tokenIds(w), 5, { outDtype: "f32", first: 1 }]],
    numbers: { vocabulary: "index", "options.first": "index" },
  },
  gemm: {
    calls: [
      (w) => [
        {
          a: w.tensor(),
          b: w.tensor(),
          layout: "TN",
          alpha: 1,
          beta: 1,
          c: w.tensor("f32", [w.rows, w.rows]),
          out: w.tensor("f32", [w.rows, w.rows]),
          outDtype: "f32",
          bias: w.tensor("bf16", [w.rows]),
          outScale: 1,
          datapath: "hopper",
          useSplitAccumulator: false,
          splitK: 1,
          progress: () => undefined,
        },
      ],
      (w) => [
        { a: w.tensor(), b: w.tensor(), gelu: true, geluEpilogue: "exact", auxDtype: "f32", plan: PLAN },
      ],
      (w) => [
        { a: w.tensor(), b: w.tensor(), geluInput: w.tensor("bf16", [w.rows, w.rows]), biasGradient: true },
      ],
      (w) => [{ a: w.tensor(), b: w.tensor(), accumulate: true, out: w.tensor("f32", [w.rows, w.rows]) }],
      (w) => [
        {
          a: { data: w.tensor("e4m3"), scaleInv: w.scalar(), tile: "tensor" },
          b: { data: w.tensor("e4m3"), scaleInv: w.scalar(), tile: "tensor" },
          outDtype: "bf16",
        },
      ],
      (w) => [{ a: w.quantize(), b: w.quantize(), outDtype: "e4m3", outScale: 2 }],
      (w) => [{ x: w.tensor(), w: w.tensor(), out: w.tensor("f32", [w.rows, w.rows]), outDtype: "f32" }],
      (w) => [
        {
          x: { data: w.tensor("e4m3"), scaleInv: w.scalar(), tile: "tensor" },
          w: { data: w.tensor("e4m3"), scaleInv: w.scalar(), tile: "tensor" },
          outDtype: "bf16",
        },
      ],
      (w) => [{ x: w.quantize(), w: w.quantize(), outDtype: "f32" }],
    ],
    numbers: {
      "options.alpha": "finite",
      "options.beta": "finite",
      "options.outScale": "finite",
      "options.splitK": "count",
      "options.plan.splitK": "count",
    },
    anyType: [
      ...["a", "b", "x", "w"].flatMap((name) => [`options.${name}`, `options.${name}.data`]),
      "options.out",
    ],
    writes: ["options.out"],
    inPlace: ["options.c", "options.geluInput"],
    exemptions: PLAN_FREE,
  },
  groupedGemm: {
    calls: [(w) => [[{ x: w.tensor(), w: w.tensor(), datapath: "exact" }]]],
    exemptions: { "products.0": "each is a call of gemm, whose row tests it" },
    refusingFunction: "gemm",
  },
  batchedGemm: {
    calls: [
      (w) => [
        {
          a: w.tensor("bf16", [2, 16, 64]),
          b: w.tensor("bf16", [2, 16, 64]),
          layout: "TN",
          alpha: 1,
          out: w.tensor("bf16", [2, 16, 16]),
          outDtype: "bf16",
          datapath: "hopper",
          plan: PLAN,
        },
      ],
      (w) => [
        {
          x: w.tensor("bf16", [2, 16, 64]),
          w: w.tensor("bf16", [2, 16, 64]),
          out: w.tensor("f32", [2, 16, 16]),
        },
      ],
    ],
    numbers: { "options.alpha": "finite", "options.plan.splitK": "count" },
    writes: ["options.out"],
    exemptions: PLAN_FREE,
  },
  gradNorm: {
    calls: [(w) => [[w.tensor(), w.tensor("f32")], { maxNorm: 1 }]],
    numbers: { "options.maxNorm": "atLeastZero" },
  },
  newtonSchulz: {
    calls: [
      (w) => [w.tensor(), { coefficients: "simple", steps: 1, eps: 1, dtype: "bf16", datapath: "hopper" }],
      (w) => [w.tensor(), { coefficients: [[1, 2, 3]], steps: 1 }],
    ],
    numbers: { "options.steps": "count", "options.eps": "atLeastZero", "options.coefficients": "finite" },
  },
  hadamard: { numbers: { signs: "bits16" } },
  relayoutScales: { calls: [(w) => [w.quantize(new Float8BlockQuantizer()), "rowwise", "padded"]] },
  sliceRows: {
    calls: [(w) => [w.quantize(new Float8BlockQuantizer()), 0, w.rows]],
    numbers: { start: "integer", end: "integer" },
  },
  splitRows: {
    calls: [
      (w) => [w.quantize(new Float8BlockQuantizer()), 2],
      (w) => [w.quantize(new Float8BlockQuantizer()), [w.rows, 0]],
    ],
    numbers: { rows: "count" },
  },
  swapAxes: {
    calls: [(w) => [w.tensor("u8", [2, 3, 4]), 0, -1]],
    numbers: { axis1: "integer", axis2: "integer" },
    anyType: ["x"],
  },
  transpose: { anyType: ["x"] },
  specialFunction: {
    calls: [
      (w) => [w.tensor("f32"), { function: "lg2.approx.f32" }],
      (w) => [w.tensor("f32"), { function: "powf", y: w.tensor("f32") }],
    ],
  },
  dropout: {
    calls: [(w) => [w.tensor(), { probability: 0.5, seed: 1n, offset: 2n, outDtype: "f32" }]],
    numbers: { "options.probability": "rate" },
  },
  gather: {
    calls: [(w) => [w.tensor(), 1, w.tensor("i32", [w.rows, 3])]],
  },
  gatherBackward: {
    calls: [(w) => [w.tensor("bf16", [w.rows, 3]), 1, w.tensor("i32", [w.rows, 3]), 5]],
    numbers: { size: "index" },
  },
  rowIdMap: {
    calls: [
      (w) => [w.tensor("i32", [w.rows, 4]), { numOutTokens: 40, alignSize: 2 }],
      (w) => [w.tensor("i32", [w.rows, 2]), { numOutTokens: 40, numExperts: 4 }],
    ],
    numbers: {
      "options.numOutTokens": "index",
      "options.numExperts": "index",
      "options.alignSize": "count",
    },
  },
  topk: {
    calls: [(w) => [w.tensor(), 4, { numGroups: 4, groupTopk: 2 }]],
    numbers: { k: "count", "options.numGroups": "count", "options.groupTopk": "count" },
  },
  takeRows: {
    calls: [
      (w) => [w.tensor(), w.tensor("i32", [7]), { weights: w.tensor("f32", [w.rows, 1]), outDtype: "f32" }],
      (w) => [w.tensor(), w.tensor("i32", [7]), { entriesPerRow: 2 }],
    ],
    numbers: { "options.entriesPerRow": "count" },
  },
  combineRows: {
    calls: [
      (w) => [w.tensor(), w.tensor("i32", [7, 2]), { weights: w.tensor("f32", [7, 2]), outDtype: "f32" }],
    ],
  },
  rowDots: {
    calls: [
      (w) => [w.tensor("bf16", [7, w.columns]), w.tensor(), w.tensor("i32", [7, 2]), { outDtype: "f32" }],
    ],
  },
  sum: {
    calls: [
      (w) => [w.tensor(), { dim: -1, keepdim: true, outDtype: "f32" }],
      (w) => [w.tensor(), { dim: [0, 1] }],
    ],
  },
  mean: {
    calls: [
      (w) => [w.tensor(), { dim: -1, keepdim: true, outDtype: "f32" }],
      (w) => [w.tensor(), { dim: [0, 1] }],
    ],
  },
  slice: {
    calls: [(w) => [w.tensor("u8", [2, 3, 4]), 1, 0, 2]],
    numbers: { start: "integer", end: "integer" },
    anyType: ["x"],
  },
  concatenate: {
    calls: [(w) => [[w.tensor("u8", [2, 3]), w.tensor("u8", [2, 5])], -1]],
    anyType: ["tensors"],
  },
  expand: { calls: [(w) => [w.tensor("u8", [2, 1]), [3, 2, 4]]], anyType: ["x"] },
  permute: {
    calls: [(w) => [w.tensor("u8", [2, 3, 4]), [2, 0, -2]]],
    numbers: { dims: "integer" },
    anyType: ["x"],
  },
  layerNorm: {
    calls: [
      (w) => [
        w.tensor(),
        w.tensor("f32", [w.columns]),
        w.tensor("f32", [w.columns]),
        { eps: 1e-5, zeroCenteredGamma: true, outDtype: "f32" },
      ],
    ],
    numbers: { "options.eps": "atLeastZero" },
  },
  rmsNorm: {
    calls: [
      (w) => [
        w.tensor(),
        w.tensor("f32", [w.columns]),
        { eps: 1e-5, zeroCenteredGamma: true, outDtype: "f32" },
      ],
    ],
    numbers: { "options.eps": "atLeastZero" },
  },
  normBackward: {
    calls: [
      (w) => [
        {
          grad: w.tensor(),
          x: w.tensor(),
          gamma: w.tensor("f32", [w.columns]),
          mean: rowVector(w),
          rstd: rowVector(w),
          zeroCenteredGamma: true,
        },
      ],
    ],
  },
  crossEntropy: {
    calls: [(w) => [w.tensor(), tokenIds(w), { smoothing: 0.1, ignore: 3 }]],
    numbers: { "options.smoothing": "share", "options.ignore": "int32" },
  },
  crossEntropyBackward: {
    calls: [
      (w) => [
        {
          grad: rowVector(w),
          logits: w.tensor(),
          targets: tokenIds(w),
          maximum: rowVector(w),
          total: rowVector(w),
        },
        { smoothing: 0.1, ignore: 3, first: 1, classes: 1000 },
      ],
    ],
    numbers: {
      "options.smoothing": "share",
      "options.ignore": "int32",
      "options.first": "index",
      "options.classes": "index",
    },
  },
  mseBackward: { calls: [(w) => [{ grad: rowVector(w), x: w.tensor(), target: w.tensor() }]] },
  attention: {
    calls: [
      (w) => [...projections(w), { ...attentionOptions(w), maxLogits: true }],
      (w) => [
        w.tensor("bf16", [2, 3, 4, 16]),
        w.tensor("bf16", [4, 8, 2, 16]),
        w.tensor("bf16", [4, 8, 2, 8]),
        { pages: w.tensor("i32", [2, 2]), keyLengths: w.tensor("i32", [2]) },
      ],
      (w) => [...tokens(w), tokenOptions(w)],
    ],
    numbers: ATTENTION_NUMBERS,
  },
  attentionBackward: {
    calls: [
      (w) => [
        w.tensor("bf16", [2, 3, 4, 8]),
        ...projections(w),
        w.tensor("bf16", [2, 3, 4, 8]),
        w.tensor("f32", [2, 4, 3]),
        { ...attentionOptions(w), biasGrad: true },
      ],
      (w) => [
        w.tensor("bf16", [6, 4, 8]),
        ...tokens(w),
        w.tensor("bf16", [6, 4, 8]),
        w.tensor("f32", [4, 6]),
        tokenOptions(w),
      ],
    ],
    numbers: ATTENTION_NUMBERS,
  },
  attentionPlan: { numbers: { width: "count", valueWidth: "count" } },
  softmax: { numbers: { "options.scale": "finite" } },
  softmaxBackward: { numbers: { "options.scale": "finite" } },
  sgd: {
    calls: [
      (w) => [
        {
          parameter: w.tensor("f32"),
          grad: w.tensor("f32"),
          copy: w.tensor(),
          gradScale: w.scalar(),
          noop: w.scalar(0),
          m: w.tensor("f32"),
          v: w.tensor("f32"),
        },
        { learningRate: 1, momentum: 0.5, dampening: 0.5, weightDecay: 1, nesterov: false, first: true },
      ],
    ],
    numbers: {
      "options.learningRate": "atLeastZero",
      "options.momentum": "atLeastZero",
      "options.dampening": "finite",
      "options.weightDecay": "atLeastZero",
    },
    writes: ["inputs.parameter", "inputs.copy", "inputs.m"],
  },
  adamw: {
    calls: [
      (w) => [
        {
          parameter: w.tensor("f32"),
          grad: w.tensor(),
          copy: w.tensor(),
          gradScale: w.scalar(),
          noop: w.scalar(0),
          m: w.tensor("f32"),
          v: w.tensor("f32"),
        },
        { learningRate: 1, step: 1, beta1: 0.5, beta2: 0.5, eps: 1, weightDecay: 1, decoupled: false },
      ],
    ],
    numbers: {
      "options.learningRate": "atLeastZero",
      "options.step": "count",
      "options.beta1": "rate",
      "options.beta2": "rate",
      "options.eps": "atLeastZero",
      "options.weightDecay": "atLeastZero",
    },
    writes: ["inputs.parameter", "inputs.copy", "inputs.m", "inputs.v"],
  },
  sweepChunk: {
    calls: [
      (w) => [
        w.backend,
        0,
        { format: "e4m3", rounding: "tiesToEven", overflow: "saturate", random: { seed: 1n, offset: 1n } },
      ],
      (w) => [w.backend, 255, { format: LAYOUT, rounding: "tiesToEven", overflow: "saturate" }],
    ],
    numbers: { chunk: "index", ...LAYOUT_NUMBERS },
    isSlow: true,
  },
  captureGraph: {
    calls: [({ backend }) => [backend instanceof GuardedBackend ? backend.inner : backend, () => 1]],
  },
  onSideStream: { calls: [({ backend }) => [backend, () => 1]] },
  empty: { calls: [(w) => [w.backend, "f32", [2, 3]]] },
  zeros: { calls: [(w) => [w.backend, "f32", [2, 3]]] },
  tensor: { calls: [(w) => [w.backend, Float32Array.of(1, 2), [2], "f32"]] },
};

/** The fields of a quantized tensor, from which another can be constructed. */
export function quantizedFields(t: QuantizedTensor, ops: object): object {
  const { spec, shape, dtype, scaleLayout, rowwise, columnwise } = t;
  return {
    spec: { ...spec },
    shape,
    dtype,
    scaleLayout,
    ops,
    ...(rowwise ? { rowwise } : {}),
    ...(columnwise ? { columnwise } : {}),
  };
}
