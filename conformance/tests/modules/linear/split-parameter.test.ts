/**
 * A layer with `parametersSplit` is bitwise equal to a layer whose weight, bias and gradients are the concatenated parameters.
 */
import { describe, expect, it } from "vitest";
import { autocast } from "../../../../src/autocast.js";
import type { ProcessGroup } from "../../../../src/collectives/group.js";
import { loopbackOver } from "../../../../src/collectives/loopback/loopback.js";
import { ArgumentError, ShapeError } from "../../../../src/errors.js";
import { LayerNormLinear } from "../../../../src/modules/layer-norm-linear.js";
import type { LinearOptions } from "../../../../src/modules/linear/parts.js";
import { Linear } from "../../../../src/modules/linear.js";
import { normalInit } from "../../../../src/modules/parameter.js";
import { quantizedModelInit } from "../../../../src/modules/quantized-init.js";
import { recompute } from "../../../../src/modules/recompute.js";
import { loadStateDictionary, stateDictionary } from "../../../../src/modules/state-dictionary.js";
import { AdamW } from "../../../../src/optimizers/adamw.js";
import { fullyShard } from "../../../../src/parallel/fsdp/fully-shard.js";
import { RandomState } from "../../../../src/quantizers/random-state.js";
import { Float8CurrentScaling } from "../../../../src/recipes/per-tensor.js";
import { Variable } from "../../../../src/tape/variable.js";
import { Scope } from "../../../../src/tensor/scope.js";
import type { Tensor } from "../../../../src/tensor/tensor.js";
import { covering, product } from "../../../arbitraries/covering.js";
import { download, upload } from "../../../values/plain.js";
import { useBackends } from "../../harness/ranks/backends.js";
import { DETERMINISTIC_RECIPES, drawnValues } from "../../harness/recipes.js";
import { testInScope, useBackend } from "../../harness/suite.js";

const backend = useBackend({ threads: 1, datapath: "hopper" });
const [IN, OUT, ROWS] = [32, 96, 32];
type Layer = Linear | LayerNormLinear;

const LAYERS: Readonly<Record<string, (options: LinearOptions) => Layer>> = {
  Linear: (options) => new Linear(backend(), IN, OUT, options),
  LayerNormLinear: (options) => new LayerNormLinear(backend(), IN, OUT, options),
};

/** Names of parts with equal numbers of rows, and numbers of rows for which some parts are views and some are copies. */
const SPLITS = {
  names: ["query_", "key", "valueProj"],
  rows: { query: 64, key: 16, valueProj: 16 },
  "odd rows": { query: 1, key: 90, valueProj: 5 },
} as const;

const STEPS = 3;
const CASES = covering(
  product({
    layer: Object.keys(LAYERS),
    recipe: Object.keys(DETERMINISTIC_RECIPES).filter((name) => name !== "block"),
    split: Object.keys(SPLITS) as (keyof typeof SPLITS)[],
    bias: [true, false],
    dtype: ["bf16", "f32"] as const,
    recomputes: [false, true],
    microbatches: [false, true],
    returnsBias: [false, true],
    frozen: [undefined, "keyWeight", "queryBias"],
  }).filter(({ recipe, dtype }) => dtype === "bf16" || !["bf16", "nvfp4"].includes(recipe)),
  2,
);
type Case = (typeof CASES)[number];

const make = (row: Pick<Case, "layer" | "bias" | "dtype">, extraOptions: LinearOptions): Layer =>
  (LAYERS[row.layer] as (options: LinearOptions) => Layer)({
    ...{ bias: row.bias, dtype: row.dtype, random: new RandomState(1n) },
    ...{ initMethod: normalInit(0.5), ...extraOptions },
  });

/** The concatenated elements of tensors, as codes. */
const joinedValues = (tensors: readonly (Tensor | undefined)[]): readonly number[] =>
  tensors.flatMap((tensor) => [...((tensor?.dataSync() ?? []) as Uint16Array)]);

/** The values of the parameters whose names end with `kind`. */
const partsOf = (layer: Layer, kind: string): readonly Variable[] =>
  [...layer.namedParameters()].flatMap(([name, parameter]) =>
    name.endsWith(kind) && !name.startsWith("layerNorm") ? [parameter] : [],
  );

function pass(layer: Layer, row: Case, step: number): unknown {
  using _ = new Scope();
  const recipe = DETERMINISTIC_RECIPES[row.recipe]?.();
  const x = new Variable(upload(backend(), drawnValues(10 + step, [ROWS, IN])), true);
  const call = row.microbatches ? { isFirstMicrobatch: step !== 1 } : {};
  let returnValue: unknown;
  const forward = (input: Variable): Variable => {
    if (!row.returnsBias) return layer.forward(input, call);
    const [out, bias] = layer.forwardWithBias(input, call);
    returnValue = bias && joinedValues([bias.tensor]);
    bias?.tensor.dispose();
    return out;
  };
  const body = () => (row.recomputes ? recompute(forward, x) : forward(x));
  const y = recipe ? autocast({ recipe }, body) : body();
  y.backward(upload(backend(), drawnValues(20 + step, [ROWS, OUT])));
  const bits = [download(y.tensor), x.grad && download(x.grad), returnValue];
  x.zeroGrad();
  return bits;
}

describe("results, gradients and steps equal the ones with one weight", () => {
  it.each(CASES.map((row, i) => [`${i}: ${JSON.stringify(row)}`, row] as const))("%s", (_, row) => {
    using _scope = new Scope();
    using split = make(row, { parametersSplit: SPLITS[row.split] });
    using wholeLayer = make(row, {});
    const frozen = row.frozen === undefined ? undefined : split.namedParameters().get(row.frozen);
    if (frozen) frozen.requiresGrad = false;
    const optimizers = [split, wholeLayer].map(
      (layer) => new AdamW(layer, { learningRate: 0.1, weightDecay: 0 }),
    );
    const expectSameValues = (tensorOf: (parameter: Variable) => Tensor | undefined): void => {
      for (const kind of ["Weight", "Bias"]) {
        const splitParts = partsOf(split, kind);
        const [wholePart] = partsOf(wholeLayer, kind.toLowerCase());
        if (!wholePart) expect(splitParts).toEqual([]);
        else {
          // each part that is not frozen has its rows of the full tensor
          const wholeValues = joinedValues([tensorOf(wholePart)]);
          let begin = 0;
          for (const part of splitParts) {
            const count = part.tensor.size;
            if (part === frozen) expect(tensorOf(part)).toBeUndefined();
            else expect(joinedValues([tensorOf(part)])).toEqual(wholeValues.slice(begin, begin + count));
            begin += count;
          }
        }
      }
    };
    for (let step = 0; step < STEPS; step++) {
      expect(pass(split, row, step)).toEqual(pass(wholeLayer, row, step));
      expectSameValues(({ grad }) => grad);
      if (frozen) break;
      for (const optimizer of optimizers) {
        optimizer.step();
        optimizer.zeroGrad();
      }
      expectSameValues(({ tensor }) => tensor);
      expect(joinedValues([split.weight.tensor])).toEqual(joinedValues([wholeLayer.weight.tensor]));
    }
    const states = (layer: Layer) =>
      [...layer.namedQuantizations().values()].map((quantization) => quantization.snapshotSync());
    expect(states(split)).toEqual(states(wholeLayer));
    for (const optimizer of optimizers) optimizer.dispose();
  });
});

testInScope("state dictionaries have TransformerEngine's names", () => {
  using layer = new LayerNormLinear(backend(), IN, OUT, { parametersSplit: SPLITS.rows });
  expect([...layer.namedParameters().keys()]).toEqual([
    ...["layerNormWeight", "layerNormBias", "queryWeight", "keyWeight", "valueProjWeight"],
    ...["queryBias", "keyBias", "valueProjBias"],
  ]);
  const shapes = [...stateDictionary(layer)].map(([name, { shape }]) => [name, shape]);
  expect(Object.fromEntries(shapes)).toEqual({
    ...{ layer_norm_weight: [IN], layer_norm_bias: [IN] },
    ...{ query_weight: [64, IN], key_weight: [16, IN], value_proj_weight: [16, IN] },
    ...{ query_bias: [64], key_bias: [16], value_proj_bias: [16] },
  });
});

it.each(Object.keys(SPLITS) as (keyof typeof SPLITS)[])("a loaded state is the weight: %s", (name) => {
  using _ = new Scope();
  const [from, to] = [2n, 3n].map(
    (seed) =>
      new Linear(backend(), IN, OUT, { parametersSplit: SPLITS[name], random: new RandomState(seed) }),
  ) as [Linear, Linear];
  loadStateDictionary(to, stateDictionary(from));
  expect(joinedValues([to.weight.tensor])).toEqual(joinedValues([from.weight.tensor]));
  const x = upload(backend(), drawnValues(1, [ROWS, IN]));
  expect(download(to.forward(x).tensor)).toEqual(download(from.forward(x).tensor));
  for (const layer of [from, to]) layer.dispose();
});

describe("among ranks", () => {
  const backends = useBackends(2);
  it.each(["column", "row"] as const)("each rank has its part of every parameter: %s", (parallelMode) => {
    using _ = new Scope();
    const parametersSplit = parallelMode === "column" ? SPLITS.names : SPLITS.rows;
    for (const group of loopbackOver(backends)) {
      const pieces = parallelMode === "column" ? 3 : 1;
      const options = () => ({ group, parallelMode, pieces, random: new RandomState(1n) }) as const;
      using split = new Linear(group.backend, IN, OUT, { ...options(), parametersSplit });
      using wholeLayer = new Linear(group.backend, IN, OUT, options());
      expect(joinedValues(partsOf(split, "Weight").map(({ tensor }) => tensor))).toEqual(
        joinedValues([wholeLayer.weight.tensor]),
      );
      const ranges = [...split.namedParameters()].map(([name, { part }]) => [name, part]);
      const { rank } = group;
      const halves = (size: number) => [[rank * (size / 2), (rank + 1) * (size / 2)]];
      const sizes = parallelMode === "column" ? [32, 32, 32] : [64, 16, 16];
      const expected = sizes.flatMap((size, i) => [
        [
          `${["query", "key", "valueProj"][i]}Weight`,
          {
            shape: [size, IN],
            ranges: parallelMode === "column" ? [halves(size), [[0, IN]]] : [[[0, size]], halves(IN)],
          },
        ],
        [
          `${["query", "key", "valueProj"][i]}Bias`,
          parallelMode === "column" ? { shape: [size], ranges: [halves(size)] } : undefined,
        ],
      ]);
      expect(Object.fromEntries(ranges)).toEqual(Object.fromEntries(expected));
    }
  });

  it("parts that the ranks cannot divide equally are refused", () => {
    const [group] = loopbackOver(backends) as [ProcessGroup];
    const options = { group, parallelMode: "column" } as const;
    const layer = (extraOptions: LinearOptions) => () =>
      new Linear(group.backend, IN, OUT, { ...options, ...extraOptions });
    expect(layer({ parametersSplit: SPLITS.names })).toThrow(ArgumentError);
    expect(layer({ parametersSplit: SPLITS.rows, pieces: 3 })).toThrow(ArgumentError);
  });
});

describe("options that do not fit are refused", () => {
  const layer = (options: LinearOptions) => () => new Linear(backend(), IN, OUT, options);
  it.each([
    [[], ArgumentError],
    [{}, ArgumentError],
    [["a", "a_"], ArgumentError],
    [["aB", "a_b"], ArgumentError],
    [["a", "Weight"], ArgumentError],
    [["a.b"], ArgumentError],
    [{ a: 0, b: OUT }, ArgumentError],
    [{ a: 1.5, b: OUT - 1.5 }, ArgumentError],
    [{ a: 1, b: OUT }, ShapeError],
    [["a", "b", "c", "d", "e"], ShapeError],
  ] as const)("%j", (parametersSplit, type) => {
    expect(layer({ parametersSplit })).toThrow(type);
  });

  it("the name of the norm", () => {
    for (const name of ["layerNorm", "layer_norm_"])
      expect(() => new LayerNormLinear(backend(), IN, OUT, { parametersSplit: [name] })).toThrow(
        ArgumentError,
      );
  });

  it("weights whose gradient or whose codes are one tensor", () => {
    const { rows: parametersSplit } = SPLITS;
    expect(layer({ parametersSplit, fuseWgradAccumulation: true })).toThrow(/fuseWgradAccumulation/);
    expect(layer({ parametersSplit, delayWgradCompute: true })).toThrow(/delayWgradCompute/);
    const recipe = new Float8CurrentScaling();
    expect(() => quantizedModelInit({ recipe }, layer({ parametersSplit }))).toThrow(/quantizedModelInit/);
    const [group] = loopbackOver([backend()]) as [ProcessGroup];
    using split = new Linear(group.backend, IN, OUT, { parametersSplit });
    expect(() => fullyShard(split, group)).toThrow(/parametersSplit/);
  });
});
