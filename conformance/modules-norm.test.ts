/** A norm and the layers behind it are the operations they are made of: to the bit. */
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { autocast } from "../src/autocast/autocast.js";
import * as functional from "../src/functional/index.js";
import { LayerNormLinear } from "../src/modules/layer-norm-linear.js";
import { LayerNormMLP, MLP_ACTIVATIONS, type MLPActivation } from "../src/modules/layer-norm-mlp.js";
import { Linear } from "../src/modules/linear.js";
import type { Module } from "../src/modules/module.js";
import { LayerNorm, type Normalization, RMSNorm } from "../src/modules/norm.js";
import type { Parameter } from "../src/modules/parameter.js";
import { Sequential } from "../src/modules/sequential.js";
import { activation, activationBackward, gated, gatedBackward } from "../src/ops/activation.js";
import { add } from "../src/ops/add.js";
import { castTo } from "../src/ops/cast.js";
import { zeros } from "../src/ops/create.js";
import { columnSum, layerNorm, type NormResult, normBackward, rmsNorm } from "../src/ops/norm.js";
import { RandomState } from "../src/quantizers/quantizer.js";
import { Float8CurrentScaling } from "../src/recipes/per-tensor.js";
import { differentiableOne, Variable } from "../src/tape/variable.js";
import { Scope } from "../src/tensor/scope.js";
import type { WideDType } from "../src/tensor/shape.js";
import type { Tensor } from "../src/tensor/tensor.js";
import { drawnTensor, expectSame, HAND_NAMES, HandLayer, ROWS } from "./harness/by-hand.js";
import { useBackend } from "./harness/suite.js";

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

/** A module's parameters by name, all drawn anew. */
function drawnParameters(module: Module, seed: number): ReadonlyMap<string, Parameter> {
  const named = module.namedParameters();
  [...named.values()].forEach((parameter, i) => {
    const { shape, dtype } = parameter.tensor;
    parameter.tensor.write(drawnTensor(backend(), seed + 20 + i, shape, dtype, 0.5).dataSync());
  });
  return named;
}

/** The norm of x by hand, and the way back through it. */
function handNorm(
  x: Tensor<WideDType>,
  [gamma, beta]: readonly (Parameter | undefined)[],
  { eps: epsilon, zeroCenteredGamma: zeroCentered }: Drawn,
) {
  const weight = (gamma as Parameter).tensor;
  const forward = (outDtype: WideDType): NormResult => {
    const options = { epsilon, zeroCentered, outDtype };
    return beta ? layerNorm(x, weight, beta.tensor, options) : rmsNorm(x, weight, options);
  };
  const backward = (grad: Tensor<WideDType>, { mean, rstd }: NormResult) =>
    normBackward({ grad, x, gamma: weight, zeroCentered, rstd, ...(mean && { mean }) });
  return { forward, backward };
}

function expectGrads(
  leaves: ReadonlyMap<string, Variable>,
  expected: Record<string, Tensor | undefined>,
): void {
  for (const [name, leaf] of leaves) expectSame(name, leaf.grad, expected[name]);
  for (const leaf of leaves.values()) leaf.zeroGrad();
}

/** Goes back from several results of one function, with a gradient for each. */
function goBack(
  results: readonly (Variable | undefined)[],
  grads: readonly (Tensor<WideDType> | undefined)[],
): void {
  const given = results.filter((each) => each !== undefined);
  const backward = () => grads.map((grad) => grad?.clone());
  differentiableOne(given, () => ({ result: zeros(backend(), "f32", [1]), backward })).backward();
}

/** The activation by hand, in f32 and rounded. */
function handActivation(name: MLPActivation, h: Tensor<WideDType>) {
  const { kind, gated: isGated } = MLP_ACTIVATIONS[name];
  return {
    forward: (outDtype: WideDType) => (isGated ? gated : activation)(h, { kind, outDtype }),
    backward: (grad: Tensor, outDtype: WideDType) =>
      (isGated ? gatedBackward : activationBackward)(grad, h, { kind, outDtype }),
  };
}

describe("norms", () => {
  it("LayerNorm and RMSNorm are the operations layerNorm, rmsNorm and normBackward", () => {
    fc.assert(
      fc.property(layers, (drawn) => {
        using _scope = new Scope();
        const { rows, inward, normalization, dtype, seed } = drawn;
        using module = new (normalization === "LayerNorm" ? LayerNorm : RMSNorm)(backend(), inward, drawn);
        const parameters = drawnParameters(module, seed);
        const x = new Variable(drawnTensor(backend(), seed, [2, rows / 2, inward], dtype), true);
        const dy = drawnTensor(backend(), seed + 1, x.shape, dtype);
        const norm = handNorm(x.tensor, [...parameters.values()], drawn);
        const y = module.forward(x);
        const expected = norm.forward(dtype);
        expectSame("y", y.value, expected.out);
        y.backward(dy);
        const { dx, dgamma, dbeta } = norm.backward(dy, expected);
        expectGrads(new Map([["x", x], ...parameters]), { x: dx, weight: dgamma, bias: dbeta });
      }),
      { numRuns: 15 },
    );
  });
});

describe.each(HAND_NAMES)("LayerNormLinear under %s", (name) => {
  it.each([false, true])(
    "is the norm, quantized as it is computed unless it is returned, and the products; its norm beside it: %s",
    (returned) => {
      const dtypes = name === "nvfp4" ? layers.map((each) => ({ ...each, dtype: "bf16" as const })) : layers;
      fc.assert(
        fc.property(dtypes, (drawn) => {
          using _scope = new Scope();
          const { rows, inward, out, dtype, seed } = drawn;
          const random = new RandomState(BigInt(seed), 8n);
          using module = new LayerNormLinear(backend(), inward, out, { ...drawn, random });
          const parameters = drawnParameters(module, seed);
          const hand = new HandLayer(backend(), name, new RandomState(BigInt(seed), 9n));
          const recipe = ROWS[name].recipe();
          for (let step = 0; step < 2; step++) {
            const x = new Variable(drawnTensor(backend(), seed + step, [rows, inward], dtype), true);
            const dy = drawnTensor(backend(), seed + step + 2, [rows, out], dtype, 0.25);
            const dnormed = returned
              ? drawnTensor(backend(), seed + step + 4, [rows, inward], dtype)
              : undefined;
            const norm = handNorm(
              x.tensor,
              [parameters.get("layerNormWeight"), parameters.get("layerNormBias")],
              drawn,
            );
            const normed = norm.forward(returned ? dtype : "f32");
            const xq = returned
              ? hand.quantize("input", normed.out, "both")
              : hand.quantizeNormed("input", normed.out, dtype, "both");
            const wq = hand.quantize("weight", module.weight.tensor, "both");
            const bias = module.bias && castTo(module.bias.tensor, "bf16");
            const [y, between] = autocast({ recipe }, () =>
              returned ? module.forwardWithNorm(x) : [module.forward(x)],
            );
            expectSame("y", y?.value, hand.product(0, wq, xq, dtype, bias));
            expectSame("normed", between?.value, returned ? normed.out : undefined);
            goBack([y, between], [dy, dnormed]);
            const dyq = hand.quantize("gradOutput", dy, "both");
            const through = hand.product(1, wq, dyq, dtype);
            const { dx, dgamma, dbeta } = norm.backward(dnormed ? add(through, dnormed) : through, normed);
            expectGrads(new Map([["x", x], ...parameters]), {
              x: dx,
              layerNormWeight: dgamma,
              layerNormBias: dbeta,
              weight: hand.product(2, xq, dyq, dtype),
              bias: module.bias && columnSum(dy),
            });
            hand.update("forward");
            hand.update("backward");
          }
        }),
        { numRuns: 5 },
      );
    },
  );
});

describe.each(HAND_NAMES)("LayerNormMLP under %s", (name) => {
  it.each(Object.keys(MLP_ACTIVATIONS) as MLPActivation[])(
    "is a norm, two layers and, quantized as it is computed, %s",
    (kind) => {
      fc.assert(
        fc.property(layers, (drawn) => {
          using _scope = new Scope();
          const dtype = name === "nvfp4" ? "bf16" : drawn.dtype;
          const { rows, inward, out, bias, seed } = drawn;
          const random = new RandomState(BigInt(seed), 8n);
          const options = { ...drawn, dtype, random, activation: kind };
          using module = new LayerNormMLP(backend(), inward, out, options);
          const parameters = drawnParameters(module, seed);
          const wide = (parameter: string): Tensor<WideDType> =>
            (parameters.get(parameter) as Parameter).tensor;
          const handRandom = new RandomState(BigInt(seed), 10n);
          const fc1 = new HandLayer(backend(), name, handRandom);
          const fc2 = new HandLayer(backend(), name, handRandom);
          const recipe = ROWS[name].recipe();
          for (let step = 0; step < 2; step++) {
            const x = new Variable(drawnTensor(backend(), seed + step, [rows, inward], dtype), true);
            const dy = drawnTensor(backend(), seed + step + 2, [rows, inward], dtype, 0.25);
            const y = autocast({ recipe }, () => module.forward(x));
            y.backward(dy);
            const norm = handNorm(
              x.tensor,
              [parameters.get("layerNormWeight"), parameters.get("layerNormBias")],
              drawn,
            );
            const normed = norm.forward("f32");
            const xq = fc1.quantizeNormed("input", normed.out, dtype, "both");
            const w1 = fc1.quantize("weight", wide("fc1Weight"), "both");
            const h = fc1.product(0, w1, xq, dtype, bias ? castTo(wide("fc1Bias"), "bf16") : undefined);
            const act = handActivation(kind, h);
            const aq = fc2.quantizeComputed("input", act.forward("f32"), dtype, "both");
            const w2 = fc2.quantize("weight", wide("fc2Weight"), "both");
            expectSame(
              "y",
              y.value,
              fc2.product(0, w2, aq, dtype, bias ? castTo(wide("fc2Bias"), "bf16") : undefined),
            );
            const dyq = fc2.quantize("gradOutput", dy, "both");
            const da = fc2.product(1, w2, dyq, dtype);
            // as TransformerEngine's layernorm_mlp.py: one kernel for delayed scaling and MXFP8 unless gated, else two
            const fused = !MLP_ACTIVATIONS[kind].gated && (name === "delayed" || name.startsWith("mxfp8"));
            const dh = act.backward(da, fused ? "f32" : dtype);
            const dhq = fused
              ? fc1.quantizeComputed("gradOutput", dh, dtype, "both")
              : fc1.quantize("gradOutput", dh, "both");
            const { dx, dgamma, dbeta } = norm.backward(fc1.product(1, w1, dhq, dtype), normed);
            expectGrads(new Map([["x", x], ...parameters]), {
              x: dx,
              layerNormWeight: dgamma,
              layerNormBias: dbeta,
              fc1Weight: fc1.product(2, xq, dhq, dtype),
              fc1Bias: bias ? columnSum(dh, dtype) : undefined,
              fc2Weight: fc2.product(2, aq, dyq, dtype),
              fc2Bias: bias ? columnSum(dy) : undefined,
            });
            for (const layer of [fc1, fc2])
              for (const pass of ["forward", "backward"] as const) layer.update(pass);
          }
        }),
        { numRuns: 3 },
      );
    },
  );
});

it("saveOriginalInput keeps neither norm nor activation of LayerNormMLP, which are made of what is kept", () => {
  const [kept, made] = [true, false].map((saveOriginalInput) => {
    using _scope = new Scope();
    using layer = new LayerNormMLP(backend(), 32, 128, { saveOriginalInput });
    const x = zeros(backend(), "bf16", [64, 32]);
    const { live } = backend().memoryUse();
    autocast({ recipe: new Float8CurrentScaling() }, () => layer.forward(x));
    return backend().memoryUse().live - live;
  }) as [number, number];
  expect(made - kept).toBeGreaterThanOrEqual(64 * 128 + 64 * 32);
});

describe("outside of autocast", () => {
  it("LayerNormLinear and LayerNormMLP are a norm, linear layers and an activation one after another", () => {
    const kinds = fc.constantFrom(undefined, ...(Object.keys(MLP_ACTIVATIONS) as MLPActivation[]));
    fc.assert(
      fc.property(layers, kinds, (drawn, kind) => {
        using _scope = new Scope();
        const { rows, inward, out, bias, normalization, dtype, seed } = drawn;
        const form = kind && MLP_ACTIVATIONS[kind];
        using whole = kind
          ? new LayerNormMLP(backend(), inward, out, { ...drawn, activation: kind })
          : new LayerNormLinear(backend(), inward, out, drawn);
        const norm = new (normalization === "LayerNorm" ? LayerNorm : RMSNorm)(backend(), inward, drawn);
        const first = new Linear(backend(), inward, form?.gated ? 2 * out : out, { dtype, bias });
        const act = (h: Variable): Variable =>
          (form?.gated ? functional.gated : functional.activation)(h, form?.kind ?? "gelu");
        const rest = form ? [act, new Linear(backend(), out, inward, { dtype, bias })] : [];
        using parts = new Sequential(backend(), norm, first, ...rest);
        const leaves = [whole, parts].map((module) => {
          const x = new Variable(drawnTensor(backend(), seed, [rows, inward], dtype), true);
          return [x, ...drawnParameters(module, seed).values()];
        });
        const results = [whole, parts].map((module, i) => module.forward(leaves[i]?.[0] as Variable));
        const dy = drawnTensor(backend(), seed + 1, results[0]?.shape ?? [], dtype);
        for (const y of results) y.backward(dy);
        expectSame("y", results[0]?.value, results[1]?.value);
        for (const [i, leaf] of (leaves[0] ?? []).entries())
          expectSame(`gradient ${i}`, leaf.grad, leaves[1]?.[i]?.grad);
        for (const leaf of leaves.flat()) leaf.zeroGrad();
      }),
      { numRuns: 30 },
    );
  });
});
