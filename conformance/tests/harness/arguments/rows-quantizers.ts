/** Rows of quantizers and quantized tensors. */

import { BLOCK_FORMAT_NAMES, blockFormat } from "../../../../src/formats/block.js";
import type { ScaleRuleName } from "../../../../src/formats/scale-rules.js";
import { QUANTIZER_CLASSES } from "../../../../src/quantizers/classes.gen.js";
import { FakeQuantizer } from "../../../../src/quantizers/fake.js";
import { Float8CurrentScalingQuantizer } from "../../../../src/quantizers/float8.js";
import { Float8BlockQuantizer } from "../../../../src/quantizers/float8-block.js";
import { HybridQuantizer, IdentityQuantizer } from "../../../../src/quantizers/hybrid.js";
import { MXFP8Quantizer } from "../../../../src/quantizers/mx.js";
import { quantizerNamed } from "../../../../src/quantizers/named.js";
import { NVFP4Quantizer } from "../../../../src/quantizers/nvfp4.js";
import type { Quantizer } from "../../../../src/quantizers/quantizer.js";
import type { QuantizedTensor } from "../../../../src/tensor/quantized.js";
import type { DerivedRows, Row, Rows } from "./row.js";
import { fieldsOf } from "./rows-ops.js";
import { SIZE, type World } from "./world.js";

const [, COLUMNS] = SIZE;

/** A class of quantizers, and an instance. */
interface Made {
  readonly name: string;
  /** Its first scale rule. */
  readonly rule: ScaleRuleName | undefined;
  readonly make: (w: World) => Quantizer;
  /** Whether the quantizer holds no tensor. */
  readonly unbound: boolean;
  /** Whether it rounds stochastically, so that it accepts random bits. */
  readonly isStochastic: boolean;
}

const MADE: readonly Made[] = [
  {
    name: "Quantizer",
    rule: undefined,
    make: () => new Float8BlockQuantizer(),
    unbound: true,
    isStochastic: false,
  },
  {
    name: "StochasticQuantizer",
    rule: undefined,
    make: () => new MXFP8Quantizer(),
    unbound: true,
    isStochastic: false,
  },
  ...BLOCK_FORMAT_NAMES.map((format): Made => {
    const { scaleSource, options, rules } = blockFormat(format);
    const isGiven = scaleSource === "given";
    return {
      name: QUANTIZER_CLASSES[format].name,
      rule: rules[0],
      make: (w) =>
        quantizerNamed(format, {
          ...(isGiven ? { scale: w.scalar() } : {}),
          ...(options.includes("stochastic") ? { stochastic: true, random: w.random, columnwise: true } : {}),
        }),
      unbound: !isGiven,
      isStochastic: options.includes("stochastic"),
    };
  }),
];

const SHARD = {
  group: { rank: 0, size: 1, reduceMax: () => undefined },
  dimension: "rows",
  pieces: 1,
} as const;
const COMMON = { rowwise: true, columnwise: true, scaleLayout: "logical", shard: SHARD } as const;
/** The options of f32 scales under a rule other than the default. */
const DIVIDED = {
  scaleRule: "f32Quotient",
  elementScaling: "divide",
  pow2Scales: false,
  amaxEpsilon: 0,
} as const;
const PIECES = { "options.shard.pieces": "count" } as const;

/** Quantizers whose options exclude each other, or need values that cannot be derived from a type (derived.ts). */
const CONSTRUCTORS: DerivedRows = {
  ...Object.fromEntries(
    MADE.slice(1).map(({ name, rule }) => [
      name,
      {
        numbers: PIECES,
        values: {
          "options.shard": SHARD,
          "options.scaleRule": rule,
          "options.elementScaling": "multiply",
        },
      },
    ]),
  ),
  Float8Quantizer: {
    calls: [(w) => [{ ...COMMON, format: "e5m2", scale: w.scalar(), amax: w.scalar() }]],
    numbers: PIECES,
  },
  Float8CurrentScalingQuantizer: {
    calls: [
      (w) => [{ ...COMMON, format: "e5m2", ...DIVIDED, amax: w.scalar() }],
      () => [{ scaleRule: "f32" }],
    ],
    numbers: { "options.amaxEpsilon": "atLeastZero", ...PIECES },
  },
  Float8BlockQuantizer: {
    calls: [
      () => [{ ...COMMON, format: "e4m3", tile: "1x128", ...DIVIDED, dataLayout: "COMPACT" }],
      () => [{ scaleRule: "f32" }],
    ],
    numbers: { "options.amaxEpsilon": "atLeastZero", ...PIECES },
  },
  Float8RowQuantizer: {
    calls: [() => [{ ...COMMON, format: "e4m3", ...DIVIDED, amaxLimit: 1200 }], () => [{ scaleRule: "f32" }]],
    numbers: { "options.amaxEpsilon": "atLeastZero", "options.amaxLimit": "atLeastZero", ...PIECES },
  },
  Int8RowQuantizer: {
    calls: [
      () => [
        {
          ...COMMON,
          scaleRule: "f32QuotientTyped",
          elementScaling: "divide",
          amaxEpsilon: 0,
          amaxLimit: 1200,
        },
      ],
      () => [{ scaleRule: "f32Quotient" }],
    ],
    numbers: { "options.amaxEpsilon": "atLeastZero", "options.amaxLimit": "atLeastZero", ...PIECES },
  },
  Int4GroupQuantizer: {
    calls: [
      () => [
        { ...COMMON, tile: "1x64", scaleRule: "f32QuotientTyped", elementScaling: "divide", amaxEpsilon: 0 },
      ],
      () => [{ scaleRule: "f32Quotient" }],
    ],
    numbers: { "options.amaxEpsilon": "atLeastZero", ...PIECES },
  },
  NVFP4Quantizer: {
    numbers: PIECES,
    calls: [
      (w) => [
        {
          ...COMMON,
          tile: "1x16",
          rht: true,
          randomSigns: true,
          stochastic: true,
          random: w.random,
          e4m3Max: 448,
          amax: w.scalar(),
          amaxColumnwise: w.scalar(),
        },
      ],
      () => [{ fourOverSix: "mae", e4m3Max: 256, rowScaled: true }],
      () => [{ scaleRule: "twoLevelProduct", elementScaling: "divideAdd" }],
    ],
  },
};

/** The reason why rows of quantizers that round to nearest have no random bits. */
const NOT_STOCHASTIC = {
  "call.randomBits": "it rounds to nearest",
  "call.randomBitsColumnwise": "it rounds to nearest",
} as const;

/** Random bits for both copies of a tensor of the default size. */
const randomBits = (w: World) => ({
  randomBits: w.tensor("u32"),
  randomBitsColumnwise: w.tensor("u32", [w.columns, w.rows]),
});

function methods({ make, unbound, isStochastic }: Made): Rows {
  const source = (w: World) => w.tensor("bf16");
  const row = (call: Row["calls"][0], rest: Omit<Row, "calls" | "self"> = {}): Row => ({
    calls: [call],
    self: make,
    outlives: true,
    unbound,
    ...rest,
  });
  let last: Quantizer | undefined;
  return {
    setUsage: row(() => [{ rowwise: true, columnwise: true }]),
    makeEmpty: row((w) => [w.backend, [32, 64], "f32"]),
    quantize: {
      ...row((w) => [source(w), {}], isStochastic ? {} : { free: NOT_STOCHASTIC }),
      ...(isStochastic ? { calls: [(w) => [source(w)], (w) => [source(w), randomBits(w)]] } : {}),
    },
    activationQuantize: {
      ...row((w) => [w.tensor("bf16"), { kind: "silu", gated: false, grad: w.tensor("bf16") }], {
        numbers: {
          "options.clamp.limit": "atLeastZero",
          "options.clamp.alpha": "finite",
          "options.clamp.offset": "finite",
        },
      }),
      calls: [
        (w) => [w.tensor("bf16"), { kind: "silu", gated: false, grad: w.tensor("bf16") }],
        (w) => [
          w.tensor("bf16", [32, 256]),
          { kind: "silu", gated: true, clamp: { limit: 7, alpha: 1, offset: 1 } },
        ],
      ],
    },
    normQuantize: row(
      (w) => [
        source(w),
        {
          gamma: w.tensor("bf16", [COLUMNS]),
          beta: w.tensor("bf16", [COLUMNS]),
          eps: 1e-5,
          zeroCenteredGamma: true,
        },
      ],
      { numbers: { "norm.eps": "atLeastZero" } },
    ),
    biasGradQuantize: row((w) => [source(w), "f32"]),
    updateQuantized: {
      calls: [
        (w) => [
          source(w),
          w.quantized(last ?? make(w)),
          { noop: w.scalar(0), ...(isStochastic ? randomBits(w) : {}) },
        ],
      ],
      ...(isStochastic ? {} : { free: NOT_STOCHASTIC }),
      self: (w) => {
        last = make(w);
        return last;
      },
      outlives: true,
      writes: ["target"],
    },
    dequantize: row((w) => [w.quantized(make(w)), "f32"], { unbound: true }),
    deriveColumnwise: {
      calls: [(w) => [w.quantized()]],
      self: () => new Float8CurrentScalingQuantizer(),
      outlives: true,
      unbound: true,
    },
  };
}

const METHODS: Rows = Object.fromEntries(
  MADE.flatMap((each) =>
    Object.entries(methods(each)).map(([method, row]) => [`${each.name}.${method}`, row]),
  ),
);

const both = (w: World): QuantizedTensor =>
  w.quantized(new Float8CurrentScalingQuantizer({ rowwise: true, columnwise: true }));

const hybrid = (): HybridQuantizer =>
  new HybridQuantizer({
    rowwiseQuantizer: new MXFP8Quantizer(),
    columnwiseQuantizer: new IdentityQuantizer(),
  });

export const QUANTIZER_ROWS: DerivedRows = {
  HybridQuantizer: {
    calls: [
      () => [
        {
          rowwiseQuantizer: new MXFP8Quantizer(),
          columnwiseQuantizer: new IdentityQuantizer(),
          columnwiseSource: "original",
        },
      ],
    ],
  },
  "HybridQuantizer.setUsage": {
    calls: [() => [{ rowwise: true, columnwise: true }]],
    self: hybrid,
    outlives: true,
  },
  "HybridQuantizer.quantize": {
    calls: [(w) => [w.tensor("bf16")]],
    self: hybrid,
    outlives: true,
    unbound: true,
  },
  multiQuantize: { calls: [(w) => [[w.tensor("bf16")], [new MXFP8Quantizer()]]] },
  splitQuantize: {
    calls: [(w) => [w.tensor("bf16"), [w.rows], [new MXFP8Quantizer()]]],
    numbers: { "splits.0": "index" },
  },
  FakeQuantizer: { calls: [() => [new MXFP8Quantizer()]] },
  "FakeQuantizer.quantize": {
    calls: [(w) => [w.tensor("bf16")]],
    self: () => new FakeQuantizer(new MXFP8Quantizer()),
    outlives: true,
    unbound: true,
  },
  "IdentityQuantizer.quantize": {
    calls: [(w) => [w.tensor("bf16")]],
    self: () => new IdentityQuantizer(),
    outlives: true,
    unbound: true,
  },
  dequantizeAs: { calls: [(w) => [both(w), { dialect: "torchao-fp8-tensor", dtype: "f32" }]] },
  diffDialects: {
    calls: [
      (w) => [
        w.tensor("bf16"),
        { a: "te", b: "torchao-mxfp8-ceil", quantizer: "mxfp8", format: "e4m3", tile: "1x32", examples: 1 },
      ],
    ],
    numbers: { "options.examples": "index" },
  },
  identifyDialect: {
    calls: [
      (w) => [
        w.tensor("f32"),
        {
          codes: w.tensor("e4m3"),
          scales: w.tensor("f32", [1]),
          tensorScale: w.scalar(),
          quantizer: "fp8-current",
        },
      ],
    ],
    anyType: ["stored.codes", "stored.scales"],
  },
  quantizerOf: {
    calls: [
      () => [{ ...COMMON, dialect: "ct-fp8-block", quantizer: "fp8-block", format: "e4m3", tile: "128x128" }],
    ],
    numbers: PIECES,
  },
  ...CONSTRUCTORS,
  ...METHODS,
  QuantizedTensor: {
    calls: [
      (w) => {
        const quantized = both(w);
        return [fieldsOf(quantized, new Float8CurrentScalingQuantizer())];
      },
      (w) => {
        const quantizer = new NVFP4Quantizer({ columnwise: true });
        return [fieldsOf(w.quantized(quantizer), quantizer)];
      },
    ],
    numbers: {
      "fields.spec.amaxEpsilon": "atLeastZero",
      "fields.spec.amaxLimit": "atLeastZero",
      "fields.spec.rhtSigns": "bits16",
    },
    anyType: [
      "fields.rowwise.data",
      "fields.rowwise.scaleInv",
      "fields.columnwise.data",
      "fields.columnwise.scaleInv",
    ],
  },
  "QuantizedTensor.copy": { calls: [() => ["rowwise"]], self: both, outlives: true },
  "QuantizedTensor.dequantize": { calls: [() => ["f32"]], self: both },
  "QuantizedTensor.updateQuantizer": {
    calls: [() => [new Float8CurrentScalingQuantizer()]],
    self: both,
    outlives: true,
  },
  "QuantizedTensor.quantize_": {
    calls: [(w) => [w.tensor("bf16"), { noop: w.scalar(0) }]],
    free: NOT_STOCHASTIC,
    self: both,
    writes: ["self"],
  },
  "QuantizedTensor.updateUsage": { calls: [() => [{ rowwise: true, columnwise: true }]], self: both },
  "QuantizedTensor.share": { calls: [() => []], self: both },
  "QuantizedTensor.clone": { calls: [() => []], self: both },
  "QuantizedTensor.reshape": { calls: [(w) => [[...both(w).shape]]], self: both },
};
