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
import { quantizedFields } from "./rows-ops.js";
import { SIZE, type World } from "./world.js";

const [, COLUMNS] = SIZE;

/** A class of quantizers, with a function that creates an instance. */
interface QuantizerRow {
  readonly name: string;
  /** The first scale rule of the block format. */
  readonly rule: ScaleRuleName | undefined;
  readonly make: (w: World) => Quantizer;
  /** Whether the quantizer holds no tensor. */
  readonly holdsNoTensor: boolean;
  /** Whether the quantizer rounds stochastically and so accepts random bits. */
  readonly isStochastic: boolean;
}

const QUANTIZERS: readonly QuantizerRow[] = [
  {
    name: "Quantizer",
    rule: undefined,
    make: () => new Float8BlockQuantizer(),
    holdsNoTensor: true,
    isStochastic: false,
  },
  {
    name: "StochasticQuantizer",
    rule: undefined,
    make: () => new MXFP8Quantizer(),
    holdsNoTensor: true,
    isStochastic: false,
  },
  ...BLOCK_FORMAT_NAMES.map((format): QuantizerRow => {
    const { scaleSource, options, rules } = blockFormat(format);
    const usesExternalScale = scaleSource === "given";
    return {
      name: QUANTIZER_CLASSES[format].name,
      rule: rules[0],
      make: (w) =>
        quantizerNamed(format, {
          ...(usesExternalScale ? { scale: w.scalar() } : {}),
          ...(options.includes("stochastic") ? { stochastic: true, random: w.random, columnwise: true } : {}),
        }),
      holdsNoTensor: !usesExternalScale,
      isStochastic: options.includes("stochastic"),
    };
  }),
];

const SHARD = {
  group: { rank: 0, size: 1, reduceMax: () => undefined },
  dimension: "rows",
  pieces: 1,
} as const;
const COMMON_OPTIONS = { rowwise: true, columnwise: true, scaleLayout: "logical", shard: SHARD } as const;
/** The options of f32 scales under a rule other than the default. */
const DIVIDE_OPTIONS = {
  scaleRule: "f32Quotient",
  elementScaling: "divide",
  pow2Scales: false,
  amaxEpsilon: 0,
} as const;
const PIECE_NUMBERS = { "options.shard.pieces": "count" } as const;

/** Quantizers whose options exclude each other, or need values that cannot be derived from a type (derived.ts). */
const CONSTRUCTORS: DerivedRows = {
  ...Object.fromEntries(
    QUANTIZERS.slice(1).map(({ name, rule }) => [
      name,
      {
        numbers: PIECE_NUMBERS,
        values: {
          "options.shard": SHARD,
          "options.scaleRule": rule,
          "options.elementScaling": "multiply",
        },
      },
    ]),
  ),
  Float8Quantizer: {
    calls: [(w) => [{ ...COMMON_OPTIONS, format: "e5m2", scale: w.scalar(), amax: w.scalar() }]],
    numbers: PIECE_NUMBERS,
  },
  Float8CurrentScalingQuantizer: {
    calls: [
      (w) => [{ ...COMMON_OPTIONS, format: "e5m2", ...DIVIDE_OPTIONS, amax: w.scalar() }],
      () => [{ scaleRule: "f32" }],
    ],
    numbers: { "options.amaxEpsilon": "atLeastZero", ...PIECE_NUMBERS },
  },
  Float8BlockQuantizer: {
    calls: [
      () => [{ ...COMMON_OPTIONS, format: "e4m3", tile: "1x128", ...DIVIDE_OPTIONS, dataLayout: "COMPACT" }],
      () => [{ scaleRule: "f32" }],
    ],
    numbers: { "options.amaxEpsilon": "atLeastZero", ...PIECE_NUMBERS },
  },
  Float8RowQuantizer: {
    calls: [
      () => [{ ...COMMON_OPTIONS, format: "e4m3", ...DIVIDE_OPTIONS, amaxLimit: 1200 }],
      () => [{ scaleRule: "f32" }],
    ],
    numbers: { "options.amaxEpsilon": "atLeastZero", "options.amaxLimit": "atLeastZero", ...PIECE_NUMBERS },
  },
  Int8RowQuantizer: {
    calls: [
      () => [
        {
          ...COMMON_OPTIONS,
          scaleRule: "f32QuotientTyped",
          elementScaling: "divide",
          amaxEpsilon: 0,
          amaxLimit: 1200,
        },
      ],
      () => [{ scaleRule: "f32Quotient" }],
    ],
    numbers: { "options.amaxEpsilon": "atLeastZero", "options.amaxLimit": "atLeastZero", ...PIECE_NUMBERS },
  },
  Int4GroupQuantizer: {
    calls: [
      () => [
        {
          ...COMMON_OPTIONS,
          tile: "1x64",
          scaleRule: "f32QuotientTyped",
          elementScaling: "divide",
          amaxEpsilon: 0,
        },
      ],
      () => [{ scaleRule: "f32Quotient" }],
    ],
    numbers: { "options.amaxEpsilon": "atLeastZero", ...PIECE_NUMBERS },
  },
  NVFP4Quantizer: {
    numbers: PIECE_NUMBERS,
    calls: [
      (w) => [
        {
          ...COMMON_OPTIONS,
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

function methodRows({ make, holdsNoTensor, isStochastic }: QuantizerRow): Rows {
  const source = (w: World) => w.tensor("bf16");
  const row = (call: Row["calls"][0], fields: Omit<Row, "calls" | "self"> = {}): Row => ({
    calls: [call],
    self: make,
    survivesDispose: true,
    isUnbound: holdsNoTensor,
    ...fields,
  });
  let lastQuantizer: Quantizer | undefined;
  return {
    setUsage: row(() => [{ rowwise: true, columnwise: true }]),
    makeEmpty: row((w) => [w.backend, [32, 64], "f32"]),
    quantize: {
      ...row((w) => [source(w), {}], isStochastic ? {} : { exemptions: NOT_STOCHASTIC }),
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
          w.quantize(lastQuantizer ?? make(w)),
          { noop: w.scalar(0), ...(isStochastic ? randomBits(w) : {}) },
        ],
      ],
      ...(isStochastic ? {} : { exemptions: NOT_STOCHASTIC }),
      self: (w) => {
        lastQuantizer = make(w);
        return lastQuantizer;
      },
      survivesDispose: true,
      writes: ["target"],
    },
    dequantize: row((w) => [w.quantize(make(w)), "f32"], { isUnbound: true }),
    deriveColumnwise: {
      calls: [(w) => [w.quantize()]],
      self: () => new Float8CurrentScalingQuantizer(),
      survivesDispose: true,
      isUnbound: true,
    },
  };
}

const METHODS: Rows = Object.fromEntries(
  QUANTIZERS.flatMap((quantizer) =>
    Object.entries(methodRows(quantizer)).map(([method, row]) => [`${quantizer.name}.${method}`, row]),
  ),
);

const bothCopies = (w: World): QuantizedTensor =>
  w.quantize(new Float8CurrentScalingQuantizer({ rowwise: true, columnwise: true }));

const hybridQuantizer = (): HybridQuantizer =>
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
    self: hybridQuantizer,
    survivesDispose: true,
  },
  "HybridQuantizer.quantize": {
    calls: [(w) => [w.tensor("bf16")]],
    self: hybridQuantizer,
    survivesDispose: true,
    isUnbound: true,
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
    survivesDispose: true,
    isUnbound: true,
  },
  "IdentityQuantizer.quantize": {
    calls: [(w) => [w.tensor("bf16")]],
    self: () => new IdentityQuantizer(),
    survivesDispose: true,
    isUnbound: true,
  },
  dequantizeAs: { calls: [(w) => [bothCopies(w), { dialect: "torchao-fp8-tensor", dtype: "f32" }]] },
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
      () => [
        {
          ...COMMON_OPTIONS,
          dialect: "ct-fp8-block",
          quantizer: "fp8-block",
          format: "e4m3",
          tile: "128x128",
        },
      ],
    ],
    numbers: PIECE_NUMBERS,
  },
  ...CONSTRUCTORS,
  ...METHODS,
  QuantizedTensor: {
    calls: [
      (w) => {
        const quantized = bothCopies(w);
        return [quantizedFields(quantized, new Float8CurrentScalingQuantizer())];
      },
      (w) => {
        const quantizer = new NVFP4Quantizer({ columnwise: true });
        return [quantizedFields(w.quantize(quantizer), quantizer)];
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
  "QuantizedTensor.copy": { calls: [() => ["rowwise"]], self: bothCopies, survivesDispose: true },
  "QuantizedTensor.dequantize": { calls: [() => ["f32"]], self: bothCopies },
  "QuantizedTensor.updateQuantizer": {
    calls: [() => [new Float8CurrentScalingQuantizer()]],
    self: bothCopies,
    survivesDispose: true,
  },
  "QuantizedTensor.quantize_": {
    calls: [(w) => [w.tensor("bf16"), { noop: w.scalar(0) }]],
    exemptions: NOT_STOCHASTIC,
    self: bothCopies,
    writes: ["self"],
  },
  "QuantizedTensor.updateUsage": { calls: [() => [{ rowwise: true, columnwise: true }]], self: bothCopies },
  "QuantizedTensor.share": { calls: [() => []], self: bothCopies },
  "QuantizedTensor.clone": { calls: [() => []], self: bothCopies },
  "QuantizedTensor.reshape": { calls: [(w) => [[...bothCopies(w).shape]]], self: bothCopies },
};
