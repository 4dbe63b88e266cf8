/** Rows of formats, random states, scopes, tensors, and `openBackend`. */
import { empty } from "../../../../src/ops/create.js";
import { Scope } from "../../../../src/tensor/scope.js";
import { makeSpec } from "../../../../src/tensor/spec.js";
import type { Row, Rows } from "./row.js";
import type { World } from "./world.js";

export const LAYOUT = {
  exponentBits: 4,
  mantissaBits: 3,
  bias: 7,
  signed: true,
  subnormals: true,
  specials: "nanOnly",
} as const;
export const LAYOUT_NUMBERS = {
  "layout.exponentBits": "count",
  "layout.mantissaBits": "index",
  "layout.bias": "integer",
} as const;
/** Fresh values for each call: some trials change the arguments, and test files share this module. */
const inputValues = () =>
  ({ data: new Float32Array(32 * 32).fill(1.5), dtype: "f32", shape: [32, 32] }) as const;
const SPEC_NUMBERS = {
  "options.spec.amaxEpsilon": "atLeastZero",
  "options.spec.amaxLimit": "atLeastZero",
  "options.spec.rhtSigns": "bits16",
} as const;
const PLAN = { datapath: "hopper-half", splitAccumulator: false, splitK: 1 } as const;
const scaledOperand = (w: World) =>
  ({ data: w.tensor("e4m3"), scaleInv: w.scalar(), tile: "tensor" }) as const;
const DRAW = { seed: 1n, offset: 2n } as const;

const scopeRow = (call: Row["calls"][0]): Row => ({
  calls: [call],
  self: (w) => {
    const scope = new Scope();
    w.own(scope);
    scope.dispose();
    return scope;
  },
  survivesDispose: true,
});

const tensorRow = (call: Row["calls"][0], fields: Partial<Row> = {}): Row => ({
  calls: [call],
  self: (w) => w.tensor("f32", [8, 8]),
  ...fields,
});

export const OTHER_ROWS: Rows = {
  derive: { calls: [() => [LAYOUT]], numbers: LAYOUT_NUMBERS },
  formatWord: { calls: [() => [LAYOUT]], numbers: LAYOUT_NUMBERS },
  factsOf: { calls: [() => ["e4m3"]] },
  tileSize: { calls: [() => ["1x32"]] },
  resolveFormat: { calls: [() => ["e4m3"]] },
  dequantizePacked: { calls: [() => [new Uint8Array(18), "gguf:q4_0"]] },
  RandomState: { calls: [() => [1n, 2n]] },
  normal: { calls: [() => [DRAW, 5, 1]], numbers: { count: "index", std: "finite" } },
  permutation: { calls: [() => [DRAW, 5]], numbers: { count: "index" } },
  randomWords: { calls: [() => [DRAW, 5]], numbers: { count: "index" } },
  explainQuantize: {
    calls: [
      () => [
        inputValues(),
        {
          spec: makeSpec("nvfp4", { stochastic: true }),
          at: [3, 17],
          direction: "rowwise",
          amax: 3,
          random: DRAW,
          values: { type: "bf16", typedScale: true, plusZero: true, finiteScales: true },
        },
      ],
      () => [inputValues(), { spec: makeSpec("fp8-delayed", {}), at: [3, 17], scale: 2 }],
      () => [
        inputValues(),
        {
          spec: makeSpec("mxfp8", { stochastic: true }),
          at: [3, 17],
          randomBits: new Uint32Array(32 * 32),
        },
      ],
    ],
    numbers: { "options.scale": "finite", "options.amax": "atLeastZero", ...SPEC_NUMBERS },
  },
  explainEncode: {
    calls: [
      () => [
        0.3,
        { format: "e4m3", rounding: "stochastic", overflow: "saturate", seed: 1n, offset: 2n, index: 3 },
      ],
      () => [0.3, { format: "e4m3", rounding: "stochastic", randomBits: 5 }],
    ],
    numbers: { x: "any", "options.index": "index", "options.randomBits": "index" },
  },
  explainSpecialFunction: {
    calls: [() => [1.5, { function: "rsqrt.approx.f32" }], () => [1.5, { function: "powf", y: 2.5 }]],
    numbers: { x: "any", "options.y": "any" },
  },
  explainGemm: {
    calls: [
      (w) => [
        {
          x: w.tensor("bf16"),
          w: w.tensor("bf16"),
          at: [1, 2],
          datapath: "hopper",
          useSplitAccumulator: false,
          splitK: 1,
          alpha: 2,
          beta: 1,
          c: w.tensor("f32", [w.rows, w.rows]),
          bias: w.tensor("f32", [w.rows]),
          outDtype: "f32",
          outScale: 1,
        },
      ],
      (w) => [{ x: scaledOperand(w), w: scaledOperand(w), at: [1, 2], outDtype: "bf16" }],
      (w) => [{ a: scaledOperand(w), b: scaledOperand(w), at: [1, 2], outDtype: "bf16" }],
      (w) => [{ a: w.tensor("bf16"), b: w.tensor("bf16"), layout: "TN", at: [1, 2], plan: PLAN }],
    ],
    numbers: {
      "options.alpha": "finite",
      "options.beta": "finite",
      "options.outScale": "finite",
      "options.splitK": "count",
      "options.plan.splitK": "count",
    },
    anyType: ["a", "b", "x", "w"].flatMap((name) => [`options.${name}`, `options.${name}.data`]),
    exemptions: {
      "options.plan.algorithm": "what an algorithm is made of has tests of its own: tests/gemm/plan.test.ts",
    },
  },
  "Scope.keep": scopeRow((w) => [w.tensor()]),
  "Scope.own": scopeRow((w) => [empty(w.backend, "f32", [2])]),
  "Scope.release": scopeRow((w) => [w.tensor()]),
  openBackend: {
    calls: [
      () => ["wasm", { threads: 1, device: 0, datapath: "hopper" }],
      () => ["wasm", { threads: 1, witness: { elements: 9, every: 2, onMismatch: "record", seed: 1n } }],
    ],
    numbers: {
      "options.threads": "count",
      "options.device": "index",
      "options.witness.elements": "count",
      "options.witness.every": "count",
    },
    isSlow: true,
  },
  witnessOf: { calls: [(w) => [w.backend]] },
};

export const TENSOR_ROWS: Rows = {
  Tensor: {
    calls: [(w) => [w.backend, "f32", [2, 3]]],
  },
  "Tensor.reshape": tensorRow(() => [[64]]),
  "Tensor.view": tensorRow(() => [0, [8]], { numbers: { first: "index" } }),
  "Tensor.slice": tensorRow(() => [0, [8]], { numbers: { first: "index" } }),
  "Tensor.paste": tensorRow((w) => [w.tensor("f32", [8]), 0], {
    numbers: { first: "index" },
    writes: ["self"],
  }),
  "Tensor.write": tensorRow(() => [new Float32Array(64)], { writes: ["self"] }),
  "Tensor.clone": tensorRow(() => []),
  "Tensor.data": tensorRow(() => []),
  "Tensor.dataSync": tensorRow(() => []),
};

/** The callables to which the law does not apply, with the reason. */
export const WITHOUT_LAW: Readonly<Record<string, string>> = Object.fromEntries(
  [
    "LockstepError",
    "ArgumentError",
    "ShapeError",
    "DTypeError",
    "UnsupportedError",
    "OutOfMemoryError",
    "DisposedError",
    "BackendError",
    "FileError",
    "MismatchError",
    "MissingPackageError",
    "DistributedError",
  ]
    .map((name) => [name, "an error holds what it is told"])
    .concat(
      ["GuardedBackend", "PassingBackend"].flatMap((backend) =>
        ["supports", "run", "algorithmFor", "splitKFor", "onSideStream"].map((name) => [
          `${backend}.${name}`,
          "a backend trusts its arguments, which operations have checked",
        ]),
      ),
    )
    .concat([
      [
        "explainDifference",
        "it takes what explainQuantize returned: tests/explain/quantize/dialects.test.ts",
      ],
    ]),
);
