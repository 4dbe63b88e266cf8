/** Master weights are quantized into their parameters, and updated from the last to the first. */
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { ArgumentError, DTypeError, ShapeError } from "../../../src/errors.js";
import { LayerNormMLP } from "../../../src/modules/layer-norm-mlp.js";
import { Linear } from "../../../src/modules/linear.js";
import type { Parameter } from "../../../src/modules/parameter.js";
import { quantizedModelInit } from "../../../src/modules/quantized-init.js";
import { castTo } from "../../../src/ops/cast/cast.js";
import { empty, tensor } from "../../../src/ops/create.js";
import { AdamW } from "../../../src/optimizers/adamw.js";
import { castMasterWeights } from "../../../src/optimizers/cast-master-weights.js";
import { SGD } from "../../../src/optimizers/sgd.js";
import { RandomState } from "../../../src/quantizers/random-state.js";
import { normal } from "../../../src/random.js";
import { QuantizedTensor } from "../../../src/tensor/quantized.js";
import { Scope } from "../../../src/tensor/scope.js";
import type { Tensor } from "../../../src/tensor/tensor.js";
import { expectSame } from "../harness/drawn-tensor.js";
import { draws } from "../harness/draws.js";
import { recipeByName, STANDARD_RECIPE_NAMES } from "../harness/step/library-recipes.js";
import { useBackend } from "../harness/suite.js";
import { RecordingBackend } from "../harness/surface/asked-backend.js";

const backend = useBackend({ threads: 1, datapath: "hopper" });
const SIZE = 32;

const quantizedOf = ({ value }: Parameter): QuantizedTensor => {
  if (value instanceof QuantizedTensor) return value;
  throw new Error("the parameter is not quantized");
};

/** Random values. Every other one is so near to a midpoint of e4m3 that f16 and bf16 round it to the midpoint. */
function master(seed: bigint): Tensor<"f32"> {
  const values = normal({ seed, offset: 0n }, SIZE * SIZE, 1);
  for (let i = 0; i < values.length; i += 2) {
    const midpoint = (17 + (i % 16)) * 2 ** (((i >> 4) % 4) - 6);
    values[i] = midpoint * (1 + (i & 64 ? 2 ** -13 : -(2 ** -13)));
  }
  return tensor(backend(), values, [SIZE, SIZE]);
}

describe("castMasterWeights", () => {
  const choices = fc.record({
    recipe: fc.constantFrom(...STANDARD_RECIPE_NAMES),
    dtype: fc.constantFrom("bf16", "f16", "f32"),
    throughModelDtype: fc.constantFrom(undefined, true, false),
    noop: fc.constantFrom(undefined, 0, 1),
    seed: fc.bigInt({ min: 0n, max: 2n ** 32n }),
  } as const);

  it("quantizes each master into its own parameter, by way of the parameter's dtype unless told otherwise", () => {
    fc.assert(
      fc.property(choices, ({ recipe, dtype, throughModelDtype, noop, seed }) => {
        using _scope = new Scope();
        const make = (): Linear[] =>
          quantizedModelInit({ recipe: recipeByName(recipe) }, () =>
            [1n, 2n, 3n].map((seed) => {
              // the Hadamard transform takes bf16 only
              const masterDtype = recipe.startsWith("nvfp4") ? "bf16" : dtype;
              return new Linear(backend(), SIZE, SIZE, { dtype: masterDtype, random: new RandomState(seed) });
            }),
          );
        const [layers, expected] = [make(), make()];
        const masters = layers.map((_, i) => master(seed + BigInt(i)));
        const flag = noop === undefined ? undefined : tensor(backend(), Float32Array.of(noop), [1]);
        const weights = layers.map(({ weight }) => weight);
        castMasterWeights(weights, masters, { throughModelDtype, noop: flag });
        for (const [i, { weight }] of expected.entries()) {
          const values = masters[i] as Tensor<"f32">;
          const roundedMaster = throughModelDtype === false ? values : castTo(values, weight.dtype);
          if (noop !== 1) quantizedOf(weight).quantize_(roundedMaster);
          const members = quantizedOf(weights[i] as Parameter).members;
          for (const [j, member] of quantizedOf(weight).members.entries())
            expectSame(`member ${j} of weight ${i}`, members[j], member);
        }
        for (const layer of [...layers, ...expected]) layer.dispose();
      }),
      { numRuns: draws(60, 20) },
    );
  });

  it("changes nothing if one of its arguments is refused", () => {
    using _scope = new Scope();
    const layers = quantizedModelInit({}, () => [1, 2].map(() => new Linear(backend(), SIZE, SIZE)));
    const plainLayer = new Linear(backend(), SIZE, SIZE);
    const weights = layers.map(({ weight }) => weight);
    const codes = (): string =>
      String(weights.flatMap((weight) => quantizedOf(weight).members.map((x) => x.dataSync())));
    const codesBefore = codes();
    const [firstMaster, secondMaster] = [master(1n), master(2n)];
    const invalidMaster = tensor(backend(), normal({ seed: 1n, offset: 0n }, SIZE, 1), [SIZE]);
    expect(() => castMasterWeights(weights, [firstMaster])).toThrow(/weights has 2 parameters/);
    expect(() => castMasterWeights(weights, [firstMaster, secondMaster, firstMaster])).toThrow(
      /weights has 2 parameters/,
    );
    expect(() => castMasterWeights(weights, [firstMaster, invalidMaster])).toThrow(ShapeError);
    expect(() =>
      castMasterWeights(weights, [firstMaster, castTo(secondMaster, "bf16") as Tensor<"f32">]),
    ).toThrow(DTypeError);
    const foreignTensor = empty(new RecordingBackend(backend()), "f32", [SIZE, SIZE]);
    expect(() => castMasterWeights(weights, [firstMaster, foreignTensor])).toThrow(
      /masters\[1\] is on another backend/,
    );
    const mixedParameters = [weights[0] as Parameter, plainLayer.weight];
    expect(() => castMasterWeights(mixedParameters, [firstMaster, secondMaster])).toThrow(ArgumentError);
    expect(() => castMasterWeights(mixedParameters, [firstMaster, secondMaster])).toThrow(
      /weights\[1\] is not quantized/,
    );
    expect(codes()).toBe(codesBefore);
    for (const layer of [...layers, plainLayer]) layer.dispose();
  });
});

it.each([
  ["sgd", (layer: LayerNormMLP) => new SGD(layer, { learningRate: 0.1, momentum: 0.5 })],
  ["adamw", (layer: LayerNormMLP) => new AdamW(layer, { learningRate: 0.1 })],
] as const)(
  "%s updates the last parameter first, whose gradient a backward pass completes first",
  (op, make) => {
    using _scope = new Scope();
    const recordingBackend = new RecordingBackend(backend());
    using layer = new LayerNormMLP(recordingBackend, SIZE, 2 * SIZE);
    using optimizer = make(layer);
    const parameters = layer.parameters();
    for (const parameter of parameters) parameter.mainGrad = empty(recordingBackend, "f32", parameter.shape);
    recordingBackend.calls.length = 0;
    optimizer.step();
    const updatedGrads = recordingBackend.calls.flatMap((call) => (call.op === op ? [call.args.grad] : []));
    const grads = [...parameters].map(({ mainGrad }) => mainGrad);
    expect(updatedGrads.map((grad) => grads.indexOf(grad as Tensor<"f32">))).toEqual(
      grads.map((_, i) => i).reverse(),
    );
  },
);
