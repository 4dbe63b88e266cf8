/** Rows of formats, random states, scopes, tensors, and `openBackend`. */
import { empty } from "../../../../src/ops/create.js";
import { Scope } from "../../../../src/tensor/scope.js";
import type { Row, Rows } from "./row.js";

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
const DRAW = { seed: 1n, offset: 2n } as const;

const scoped = (call: Row["calls"][0]): Row => ({
  calls: [call],
  self: (w) => {
    const scope = new Scope();
    w.own(scope);
    scope.dispose();
    return scope;
  },
  outlives: true,
});

const onTensor = (call: Row["calls"][0], rest: Partial<Row> = {}): Row => ({
  calls: [call],
  self: (w) => w.tensor("f32", [8, 8]),
  ...rest,
});

export const OTHER_ROWS: Rows = {
  derive: { calls: [() => [LAYOUT]], numbers: LAYOUT_NUMBERS },
  formatWord: { calls: [() => [LAYOUT]], numbers: LAYOUT_NUMBERS },
  factsOf: { calls: [() => ["e4m3"]] },
  resolveFormat: { calls: [() => ["e4m3"]] },
  RandomState: { calls: [() => [1n, 2n]] },
  normal: { calls: [() => [DRAW, 5, 1]], numbers: { count: "index", std: "finite" } },
  permutation: { calls: [() => [DRAW, 5]], numbers: { count: "index" } },
  randomWords: { calls: [() => [DRAW, 5]], numbers: { count: "index" } },
  "Scope.keep": scoped((w) => [w.tensor()]),
  "Scope.own": scoped((w) => [empty(w.backend, "f32", [2])]),
  "Scope.release": scoped((w) => [w.tensor()]),
  openBackend: {
    calls: [() => ["wasm", { threads: 1, device: 0, datapath: "hopper" }]],
    numbers: { "options.threads": "count", "options.device": "index" },
    costly: true,
  },
};

export const TENSOR_ROWS: Rows = {
  Tensor: {
    calls: [(w) => [w.backend, "f32", [2, 3]]],
  },
  "Tensor.reshape": onTensor(() => [[64]]),
  "Tensor.view": onTensor(() => [0, [8]], { numbers: { first: "index" } }),
  "Tensor.slice": onTensor(() => [0, [8]], { numbers: { first: "index" } }),
  "Tensor.paste": onTensor((w) => [w.tensor("f32", [8]), 0], {
    numbers: { first: "index" },
    writes: ["self"],
  }),
  "Tensor.write": onTensor(() => [new Float32Array(64)], { writes: ["self"] }),
  "Tensor.clone": onTensor(() => []),
  "Tensor.data": onTensor(() => []),
  "Tensor.dataSync": onTensor(() => []),
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
        ["supports", "run", "algorithmFor", "onSideStream"].map((name) => [
          `${backend}.${name}`,
          "a backend trusts its arguments, which operations have checked",
        ]),
      ),
    ),
);
