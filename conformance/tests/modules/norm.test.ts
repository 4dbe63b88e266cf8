/** A norm, and layers that begin with one, equal the operations that they consist of, bit for bit. */
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { autocast } from "../../../src/autocast.js";
import * as functional from "../../../src/functional/index.js";
import { LayerNormLinear } from "../../../src/modules/layer-norm-linear.js";
import { LayerNormMLP, MLP_ACTIVATIONS, type MLPActivation } from "../../../src/modules/layer-norm-mlp.js";
import { Linear } from "../../../src/modules/linear.js";
import type { Module } from "../../../src/modules/module.js";
import { LayerNorm, type Normalization, RMSNorm } from "../../../src/modules/norm.js";
import type { Parameter } from "../../../src/modules/parameter.js";
import { Sequential } from "../../../src/modules/sequential.js";
import { tensor, zeros } from "../../../src/ops/create.js";
import { layerNorm, type NormResult, normBackward, rmsNorm } from "../../../src/ops/rows/norm.js";
import { Float8Quantizer } from "../../../src/quantizers/float8.js";
import { RandomState } from "../../../src/quantizers/random-state.js";
import { MXFP8BlockScaling, NVFP4BlockScaling } from "../../../src/recipes/block-scaled.js";
import { CustomRecipe } from "../../../src/recipes/custom.js";
import { DelayedScaling, Float8CurrentScaling } from "../../../src/recipes/per-tensor.js";
import type { Recipe } from "../../../src/recipes/recipe.js";
import { noGrad } from "../../../src/tape/grad-mode.js";
import { Variable } from "../../../src/tape/variable.js";
import { Scope } from "../../../src/tensor/scope.js";
import type { WideDType } from "../../../src/tensor/shape.js";
import type { Tensor } from "../../../src/tensor/tensor.js";
import { drawnTensor, expectSame } from "../harness/drawn-tensor.js";
import { draws } from "../harness/draws.js";
import { useBackend } from "../harness/suite.js";

const backend = useBackend({ threads: 1, datapath: "hopper" });
const size = fc.constantFrom(32, 64, 160);

const layers = fc.record({
  rows: size,
  inward: size,
  out: size,
  bias: fc.boolean(),
  normalization: fc.constantFrom<Normalization>("LayerNorm", "RMSNorm"),
  zeroCenteredGamma: fc.boolean(),
  eps: fc.constantFrom(1e-5, 0.125),
  dtype: fc.constantFrom<WideDType>("bf16", "f32"),
  seed: fc.nat(),
});

type Drawn = typeof layers extends fc.Arbitrary<infer T> ? T : never;

const normOptions = ({ dtype, eps, zeroCenteredGamma }: Drawn) => ({ dtype, eps, zeroCenteredGamma });

/** A module's parameters by name, with new random values. */
function drawnParameters(module: Module, seed: number): ReadonlyMap<string, Parameter> {
  const named = module.namedParameters();
  [...named.values()].forEach((parameter, i) => {
    const { shape, dtype } = parameter.tensor;
    parameter.tensor.write(drawnTensor(backend(), seed + 20 + i, shape, dtype, 0.5).dataSync());
  });
  return named;
}

/** The norm of x by explicit operations, and its backward pass. */
function normByOperations(
  x: Tensor<WideDType>,
  [gamma, beta]: readonly (Parameter | undefined)[],
  { eps, zeroCenteredGamma }: Drawn,
) {
  const weight = (gamma as Parameter).tensor;
  const forward = (outDtype: WideDType): NormResult => {
    const options = { eps, zeroCenteredGamma, outDtype };
    return beta ? layerNorm(x, weight, beta.tensor, options) : rmsNorm(x, weight, options);
  };
  const backward = (grad: Tensor<WideDType>, { mean, rstd }: NormResult) =>
    normBackward({ grad, x, gamma: weight, zeroCenteredGamma, rstd, ...(mean && { mean }) });
  return { forward, backward };
}

function expectGrads(
  leaves: ReadonlyMap<string, Variable>,
  expected: Record<string, Tensor | undefined>,
): void {
  for (const [name, leaf] of leaves) expectSame(name, leaf.grad, expected[name]);
  for (const leaf of leaves.values()) leaf.zeroGrad();
}

describe("norms", () => {
  it("LayerNorm and RMSNorm are the operations layerNorm, rmsNorm and normBackward", () => {
    fc.assert(
      fc.property(layers, (layerCase) => {
        using _scope = new Scope();
        const { rows, inward, normalization, dtype, seed } = layerCase;
        const options = normOptions(layerCase);
        using module = new (normalization === "LayerNorm" ? LayerNorm : RMSNorm)(backend(), inward, options);
        const parameters = drawnParameters(module, seed);
        const x = new Variable(drawnTensor(backend(), seed, [2, rows / 2, inward], dtype), true);
        const dy = drawnTensor(backend(), seed + 1, x.shape, dtype);
        const norm = normByOperations(x.tensor, [...parameters.values()], layerCase);
        const y = module.forward(x);
        const expected = norm.forward(dtype);
        expectSame("y", y.value, expected.out);
        y.backward(dy);
        const { dx, dgamma, dbeta } = norm.backward(dy, expected);
        expectGrads(new Map([["x", x], ...parameters]), { x: dx, weight: dgamma, bias: dbeta });
      }),
      { numRuns: draws(15) },
    );
  });
});

it("saveOriginalInput saves neither norm nor activation of LayerNormMLP: they are recomputed", () => {
  const [keptResults, recomputedResults] = [true, false].map((saveOriginalInput) => {
    using _scope = new Scope();
    using layer = new LayerNormMLP(backend(), 32, 128, { saveOriginalInput });
    const x = zeros(backend(), "bf16", [64, 32]);
    const { live } = backend().memoryUse();
    autocast({ recipe: new Float8CurrentScaling() }, () => layer.forward(x));
    return backend().memoryUse().live - live;
  }) as [number, number];
  expect(recomputedResults - keptResults).toBeGreaterThanOrEqual(64 * 128 + 64 * 32);
});

describe("outside of autocast", () => {
  it("LayerNormLinear and LayerNormMLP are a norm, linear layers and an activation one after another", () => {
    const kinds = fc.constantFrom(undefined, ...(Object.keys(MLP_ACTIVATIONS) as MLPActivation[]));
    fc.assert(
      fc.property(layers, kinds, (layerCase, kind) => {
        using _scope = new Scope();
        const { rows, inward, out, bias, normalization, dtype, seed } = layerCase;
        const form = kind && MLP_ACTIVATIONS[kind];
        const options = { ...normOptions(layerCase), normalization, bias };
        using fusedLayer = kind
          ? new LayerNormMLP(backend(), inward, out, { ...options, activation: kind })
          : new LayerNormLinear(backend(), inward, out, options);
        const Norm = normalization === "LayerNorm" ? LayerNorm : RMSNorm;
        const norm = new Norm(backend(), inward, normOptions(layerCase));
        const linear = new Linear(backend(), inward, form?.gated ? 2 * out : out, { dtype, bias });
        const act = (hidden: Variable): Variable =>
          (form?.gated ? functional.gated : functional.activation)(hidden, form?.kind ?? "gelu");
        const layersAfter = form ? [act, new Linear(backend(), out, inward, { dtype, bias })] : [];
        using separateLayers = new Sequential(backend(), norm, linear, ...layersAfter);
        const leaves = [fusedLayer, separateLayers].map((module) => {
          const x = new Variable(drawnTensor(backend(), seed, [rows, inward], dtype), true);
          return [x, ...drawnParameters(module, seed).values()];
        });
        const results = [fusedLayer, separateLayers].map((module, i) =>
          module.forward(leaves[i]?.[0] as Variable),
        );
        const dy = drawnTensor(backend(), seed + 1, results[0]?.shape ?? [], dtype);
        for (const y of results) y.backward(dy);
        expectSame("y", results[0]?.value, results[1]?.value);
        for (const [i, leaf] of (leaves[0] ?? []).entries())
          expectSame(`gradient ${i}`, leaf.grad, leaves[1]?.[i]?.grad);
        for (const leaf of leaves.flat()) leaf.zeroGrad();
      }),
      { numRuns: draws(30) },
    );
  });
});

describe("the quantizers of a custom recipe", () => {
  const [ROWS, FROM, TO] = [32, 64, 32];
  const bits = (x: Tensor): unknown => [x.dtype, ...x.dataSync()];
  const NORMED: Readonly<Record<string, () => Recipe>> = {
    custom: () => {
      const scale = tensor(backend(), new Float32Array([1]));
      return new CustomRecipe({ quantizerFactory: () => new Float8Quantizer({ scale }) });
    },
    delayed: () => new DelayedScaling(),
    current: () => new Float8CurrentScaling(),
    mxfp8: () => new MXFP8BlockScaling(),
    nvfp4: () => new NVFP4BlockScaling(),
  };
  it.each(Object.entries(NORMED))(
    "%s: read the norm's rounded result, as those of a layer of its own, where the norm is not fused",
    (name, recipe) => {
      using _ = new Scope();
      const options = { random: new RandomState(1n) };
      using fusedLayer = new LayerNormLinear(backend(), FROM, TO, options);
      using norm = new LayerNorm(backend(), FROM);
      using layer = new Linear(backend(), FROM, TO, { random: new RandomState(1n) });
      const x = drawnTensor(backend(), 3, [ROWS, FROM], "bf16");
      const gamma = drawnTensor(backend(), 4, [FROM], "bf16").dataSync();
      for (const parameter of [fusedLayer.layerNormWeight, norm.weight]) parameter.tensor.write(gamma);
      const separateResult = noGrad(() =>
        autocast({ recipe: recipe() }, () => layer.forward(norm.forward(x))),
      );
      const fusedResult = noGrad(() =>
        autocast({ recipe: recipe() }, () =>
          name === "custom" ? fusedLayer.forward(x) : fusedLayer.forwardWithNorm(x)[0],
        ),
      );
      expect(bits(fusedResult.tensor)).toEqual(bits(separateResult.tensor));
    },
  );
});
