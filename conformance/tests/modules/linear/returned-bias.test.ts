/**
 * A layer that returns its bias has the bits of a layer without a bias. The bias gets its gradient from the operations that the
 * caller applies to it.
 */
import { describe, expect, it } from "vitest";
import { autocast } from "../../../../src/autocast.js";
import * as functional from "../../../../src/functional/index.js";
import { GroupedLinear } from "../../../../src/modules/grouped-linear.js";
import { LayerNormLinear } from "../../../../src/modules/layer-norm-linear.js";
import { LayerNormMLP } from "../../../../src/modules/layer-norm-mlp.js";
import type { LinearOptions } from "../../../../src/modules/linear/parts.js";
import { Linear } from "../../../../src/modules/linear.js";
import type { Module } from "../../../../src/modules/module.js";
import { MultiheadAttention } from "../../../../src/modules/multihead-attention.js";
import { wideTensor } from "../../../../src/modules/parameter.js";
import { recompute } from "../../../../src/modules/recompute.js";
import { RandomState } from "../../../../src/quantizers/random-state.js";
import { noGrad } from "../../../../src/tape/grad-mode.js";
import { Variable } from "../../../../src/tape/variable.js";
import { Scope } from "../../../../src/tensor/scope.js";
import type { Tensor } from "../../../../src/tensor/tensor.js";
import { covering, product } from "../../../arbitraries/covering.js";
import { download, upload } from "../../../values/plain.js";
import { DETERMINISTIC_RECIPES, drawnValues } from "../../harness/recipes.js";
import { scoped, useBackend } from "../../harness/suite.js";

const backend = useBackend({ threads: 1, datapath: "hopper" });
const [SIZE, ROWS] = [128, 32];

/** A layer, as a function of its input with and without its bias. */
interface Layer {
  readonly module: Module;
  readonly forward: (x: Variable) => Variable;
  readonly withBias: (x: Variable) => readonly [Variable, Variable | undefined, Variable?];
  /** The prefix of the names of the parameters that are returned. */
  readonly bias: string;
}

type Make = (options: LinearOptions) => Layer;

const withNorm = (module: LayerNormLinear | LayerNormMLP, bias: string): Layer => ({
  ...{ module, bias },
  forward: (x) => module.forwardWithNorm(x)[0],
  withBias: (x) => module.forwardWithBiasAndNorm(x),
});

const LAYERS: Readonly<Record<string, Make>> = {
  Linear: (options) => {
    const module = new Linear(backend(), SIZE, SIZE, options);
    return {
      ...{ module, bias: "bias" },
      forward: (x) => module.forward(x),
      withBias: (x) => module.forwardWithBias(x),
    };
  },
  LayerNormLinear: (options) => {
    const module = new LayerNormLinear(backend(), SIZE, SIZE, options);
    return {
      ...{ module, bias: "bias" },
      forward: (x) => module.forward(x),
      withBias: (x) => module.forwardWithBias(x),
    };
  },
  LayerNormMLP: (options) => {
    const module = new LayerNormMLP(backend(), SIZE, SIZE, { ...options, activation: "swiglu" });
    return {
      ...{ module, bias: "fc2Bias" },
      forward: (x) => module.forward(x),
      withBias: (x) => module.forwardWithBias(x),
    };
  },
  "LayerNormLinear with its norm": (options) =>
    withNorm(new LayerNormLinear(backend(), SIZE, SIZE, options), "bias"),
  "LayerNormMLP with its norm": (options) =>
    withNorm(new LayerNormMLP(backend(), SIZE, SIZE, options), "fc2Bias"),
  MultiheadAttention: (options) => {
    const module = new MultiheadAttention(backend(), SIZE, 2, { ...options, attentionDropout: 0 });
    const cube = (x: Variable): Variable => functional.reshape(x, [1, ROWS, SIZE]);
    return {
      ...{ module, bias: "proj.bias" },
      forward: (x) => functional.reshape(module.forward(cube(x)), [ROWS, SIZE]),
      withBias: (x) => {
        const [out, bias] = module.forwardWithBias(cube(x));
        return [functional.reshape(out, [ROWS, SIZE]), bias];
      },
    };
  },
};

const CASES = covering(
  product({
    layer: Object.keys(LAYERS),
    recipe: Object.keys(DETERMINISTIC_RECIPES),
    dtype: ["bf16", "f32"] as const,
    recomputes: [false, true],
    bias: [true, false],
  }).filter(({ recipe, dtype }) => recipe !== "bf16" || dtype === "bf16"),
  2,
);

/** Sets the returned bias of a layer to 0, as a layer without one has it, or to drawn values. */
function setBias({ module, bias }: Layer, isDrawn: boolean): Variable | undefined {
  const parameter = module.namedParameters().get(bias);
  if (!parameter) return undefined;
  const values = drawnValues(5, [SIZE]);
  using source = upload(backend(), values);
  if (isDrawn) (parameter.value as Tensor).paste(functional.cast(source, parameter.dtype).tensor, 0);
  return parameter;
}

const bitsOf = (x: Tensor | undefined): unknown => x && download(x);

describe("the result and its gradients are those of a bias of 0, and the bias is returned", () => {
  it.each(CASES.map((row, i) => [`${i}: ${JSON.stringify(row)}`, row] as const))("%s", (_, row) => {
    using _scope = new Scope();
    const recipe = DETERMINISTIC_RECIPES[row.recipe]?.();
    const region = <T>(body: () => T): T => (recipe ? autocast({ recipe }, body) : body());
    const make = (): Layer =>
      (LAYERS[row.layer] as Make)({ dtype: row.dtype, bias: row.bias, random: new RandomState(3n) });
    const [returning, plain] = [make(), make()];
    const bias = setBias(returning, true);
    const x = [0, 1].map(() => new Variable(upload(backend(), drawnValues(1, [ROWS, SIZE])), true));
    const dy = upload(backend(), drawnValues(2, [ROWS, SIZE]));
    let returned: unknown;
    const body = (input: Variable): Variable => {
      const [out, ...rest] = returning.withBias(input);
      returned = bitsOf(rest[0]?.tensor);
      return rest[0] ? functional.add(out, rest[0]) : out;
    };
    const y = region(() => (row.recomputes ? recompute(body, x[0] as Variable) : body(x[0] as Variable)));
    const expected = region(() => plain.forward(x[1] as Variable));
    // the same sum of leaves: the result without a bias, and the bias
    const leaf = new Variable(expected.tensor, true);
    const leafBias = bias && new Variable(functional.cast(bias, "bf16").tensor.clone(), true);
    const sum = leafBias ? functional.add(leaf, leafBias) : leaf;
    expect(download(y.tensor)).toEqual(download(sum.tensor));
    expect(returned).toEqual(bitsOf(leafBias?.tensor));
    y.backward(dy);
    expected.backward(dy);
    if (leafBias && bias) {
      sum.backward(dy);
      const grad = functional.cast(leafBias.grad as Tensor, row.dtype).tensor;
      expect(bitsOf(bias.grad)).toEqual(bitsOf(grad));
      for (const each of [leaf, leafBias]) each.zeroGrad();
    }
    expect(bitsOf(x[0]?.grad)).toEqual(bitsOf(x[1]?.grad));
    const grads = ({ module, bias: name }: Layer) =>
      [...module.namedParameters()].filter(([key]) => key !== name).map(([key, p]) => [key, bitsOf(p.grad)]);
    expect(grads(returning)).toEqual(grads(plain));
    const states = ({ module }: Layer) =>
      [...module.namedQuantizations().values()].map((each) => each.snapshotSync());
    expect(states(returning)).toEqual(states(plain));
    for (const each of [returning.module, plain.module]) each.dispose();
    for (const each of x) each.zeroGrad();
  });
});

describe("GroupedLinear returns the bias of each expert", () => {
  it.each(Object.keys(DETERMINISTIC_RECIPES))("under %s", (name) => {
    using _scope = new Scope();
    const recipe = DETERMINISTIC_RECIPES[name]?.();
    const region = <T>(body: () => T): T => (recipe ? autocast({ recipe }, body) : body());
    const make = () => new GroupedLinear(backend(), 3, SIZE, SIZE, { random: new RandomState(3n) });
    using returning = make();
    using plain = make();
    const drawn = Float32Array.from({ length: SIZE }, (_, i) => i / 8);
    for (const each of returning.biases)
      (each.value as Tensor).paste(wideTensor(backend(), drawn, [SIZE], "bf16"), 0);
    const splits = [5, 0, 9];
    const x = upload(backend(), drawnValues(1, [14, SIZE]));
    const dy = upload(backend(), drawnValues(2, [14, SIZE]));
    const [out, biases] = region(() => returning.forwardWithBias(x, splits));
    const expected = region(() => plain.forward(x, splits));
    expect(download(out.tensor)).toEqual(download(expected.tensor));
    expect(biases.map((each) => bitsOf(each.tensor))).toEqual(
      returning.biases.map((each) => bitsOf(each.value as Tensor)),
    );
    const total = biases.reduce((sum, each) => functional.add(sum, each), out);
    total.backward(dy);
    expected.backward(dy);
    expect(returning.weights.map(({ grad }) => bitsOf(grad))).toEqual(
      plain.weights.map(({ grad }) => bitsOf(grad)),
    );
    const leaf = new Variable(upload(backend(), drawnValues(9, [SIZE])), true);
    functional.add(x, leaf).backward(dy);
    expect(returning.biases.map(({ grad }) => bitsOf(grad))).toEqual([0, 1, 2].map(() => bitsOf(leaf.grad)));
    leaf.zeroGrad();
  });
});

scoped("without gradients the bias is returned too, and nothing is recorded", () => {
  using layer = new Linear(backend(), SIZE, SIZE);
  const x = upload(backend(), drawnValues(1, [ROWS, SIZE]));
  const [out, bias] = noGrad(() => layer.forwardWithBias(x));
  expect([out.requiresGrad, bias?.requiresGrad]).toEqual([false, false]);
  expect(bias?.shape).toEqual([SIZE]);
});
