/** A linear layer equals its products, and under a recipe its quantizers and products, bit for bit. */
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { autocast } from "../../../src/autocast.js";
import { dotProductAttention } from "../../../src/functional/attention.js";
import { activation, add } from "../../../src/functional/elementwise.js";
import { Linear } from "../../../src/modules/linear.js";
import { recompute } from "../../../src/modules/recompute.js";
import { castTo } from "../../../src/ops/cast/cast.js";
import { tensor, zeros } from "../../../src/ops/create.js";
import { gemm } from "../../../src/ops/gemm/gemm.js";
import { columnSum } from "../../../src/ops/rows/norm.js";
import { softmax, softmaxBackward } from "../../../src/ops/rows/softmax.js";
import { RandomState } from "../../../src/quantizers/random-state.js";
import { normal } from "../../../src/random.js";
import { Float8CurrentScaling } from "../../../src/recipes/per-tensor.js";
import { noGrad } from "../../../src/tape/grad-mode.js";
import { Variable } from "../../../src/tape/variable.js";
import { Scope } from "../../../src/tensor/scope.js";
import { WIDE_DTYPES, type WideDType } from "../../../src/tensor/shape.js";
import type { Tensor } from "../../../src/tensor/tensor.js";
import { drawnTensor, expectSame } from "../harness/drawn-tensor.js";
import { draws, sampleCases } from "../harness/draws.js";
import { createInputs, rowsWhere, step } from "../harness/modules/calls.js";
import { recipeByName, STANDARD_RECIPE_NAMES } from "../harness/step/library-recipes.js";
import { useBackend } from "../harness/suite.js";

const backend = useBackend({ threads: 1, datapath: "hopper" });
const size = fc.constantFrom(32, 64, 160);

/** A layer, and its inputs and gradients. */
const layers = fc.record({
  rows: size,
  inward: size,
  out: size,
  bias: fc.boolean(),
  needsGrad: fc.boolean(),
  seed: fc.nat(),
});

/**
 * Gives the layer its initial parameters: approximately normal weights from the first draw, and numbers for the bias.
 */
function makeLinear(
  { inward, out, bias, seed }: { inward: number; out: number; bias: boolean; seed: number },
  dtype: WideDType,
  random = new RandomState(BigInt(seed)),
) {
  const layer = new Linear(backend(), inward, out, { dtype, bias, random });
  layer.bias?.tensor.write(drawnTensor(backend(), seed + 3, [out], dtype).dataSync());
  return layer;
}

describe("outside of autocast", () => {
  it("y = x·wᵀ + bias and its gradients are computed as three products and a sum of columns", () => {
    fc.assert(
      fc.property(layers, fc.constantFrom(...WIDE_DTYPES), (layerCase, dtype) => {
        using _scope = new Scope();
        const { rows, inward, out, needsGrad, seed } = layerCase;
        using layer = makeLinear(layerCase, dtype);
        const x = new Variable(drawnTensor(backend(), seed, [rows, inward], dtype), needsGrad);
        const dy = drawnTensor(backend(), seed + 1, [rows, out], dtype);
        const y = layer.forward(x);
        const w = layer.weight.tensor;
        const options = { outDtype: dtype, datapath: dtype === "f32" ? "fp32" : "hopper" } as const;
        const bias = layer.bias ? { bias: layer.bias.tensor } : {};
        expectSame("y", y.value, gemm({ a: w, b: x.tensor, ...bias, ...options }).out);
        y.backward(dy);
        expectSame("dx", x.grad, needsGrad ? gemm({ a: w, b: dy, layout: "NN", ...options }).out : undefined);
        expectSame("dw", layer.weight.grad, gemm({ a: x.tensor, b: dy, layout: "NT", ...options }).out);
        expectSame("db", layer.bias?.grad, layer.bias && columnSum(dy));
        x.zeroGrad();
      }),
      { numRuns: draws(20) },
    );
  });

  it("initial weights are consecutive draws of the random state, rounded to the weights' type", () => {
    fc.assert(
      fc.property(layers, fc.constantFrom(...WIDE_DTYPES), ({ inward, out, bias, seed }, dtype) => {
        using _scope = new Scope();
        const random = new RandomState(BigInt(seed), 5n);
        using firstLayer = new Linear(backend(), inward, out, { dtype, bias, random });
        using secondLayer = new Linear(backend(), out, inward, { dtype, bias, random });
        for (const [layer, offset] of [
          [firstLayer, 5n],
          [secondLayer, 6n],
        ] as const) {
          const values = normal({ seed: BigInt(seed), offset }, inward * out, 0.023);
          const wide = tensor(backend(), values, layer.weight.shape);
          expectSame("weight", layer.weight.value, castTo(wide, dtype));
          expectSame(
            "bias",
            layer.bias?.value,
            layer.bias && castTo(zeros(backend(), "f32", layer.bias.shape), dtype),
          );
        }
        expect(random.offset).toBe(7n);
      }),
      { numRuns: draws(10) },
    );
  });
});

/** Layers with the option that have operations of their own. */
const KEEPING = rowsWhere(
  ({ takes, composed, operationsOf }) => takes.includes("saveOriginalInput") && !composed && !operationsOf,
);
const RECORDLESS = STANDARD_RECIPE_NAMES.filter((name) => !name.startsWith("delayed"));

it.each(sampleCases(RECORDLESS))(
  "%s: a layer with saveOriginalInput quantizes its input or norm again, with the same gradients",
  (name) => {
    fc.assert(
      fc.property(layers, (layerCase) => {
        using _scope = new Scope();
        const { rows, inward, out, seed } = layerCase;
        const sizes = { rows, from: inward, to: out, middle: out };
        for (const [layer, row] of KEEPING) {
          const [keptResults, recomputedResults] = [true, false].map((saveOriginalInput) => {
            const random = new RandomState(BigInt(seed));
            using builtModule = row.build(backend(), sizes, { random, saveOriginalInput });
            const inputs = createInputs(backend(), builtModule, { rows, seed });
            step(builtModule, inputs, recipeByName(name), { seed: seed + 1 });
            const grads = [...inputs, ...builtModule.module.parameters()].map((leaf) => leaf.grad?.clone());
            for (const x of inputs) x.zeroGrad();
            return grads;
          });
          for (const [i, grad] of (recomputedResults ?? []).entries())
            expectSame(`${layer} ${i}`, keptResults?.[i], grad);
        }
      }),
      { numRuns: draws(4) },
    );
  },
);

describe.each(sampleCases(STANDARD_RECIPE_NAMES))("under %s", (name) => {
  it("a cached weight gives the bits of one that is not, in passes with gradients and without", () => {
    const pass = fc.record({ grad: fc.boolean(), inputGrad: fc.boolean(), isFirst: fc.boolean() });
    fc.assert(
      fc.property(fc.array(pass, { minLength: 2, maxLength: 5 }), (passes) => {
        const bits = (isCached: boolean): readonly unknown[] => {
          using _ = new Scope();
          const recipe = recipeByName(name);
          using layer = new Linear(backend(), 128, 128, { random: new RandomState(1n), bias: false });
          return passes.map(({ grad, inputGrad, isFirst }, i) => {
            const x = new Variable(drawnTensor(backend(), i, [128, 128], "bf16"), inputGrad);
            // the first pass cannot read from the cache
            const call = isCached ? { isFirstMicrobatch: i === 0 || isFirst } : {};
            const run = () => autocast({ recipe }, () => layer.forward(x, call));
            const y = grad ? run() : noGrad(run);
            if (grad) y.backward(drawnTensor(backend(), -1 - i, [128, 128], "bf16"));
            const grads = [x.grad, layer.weight.grad].map((grad) => grad && String(grad.dataSync()));
            for (const leaf of [x, layer.weight]) leaf.zeroGrad();
            return [String(y.tensor.dataSync()), ...grads];
          });
        };
        // under delayed scaling, a cached weight keeps the scale of its first pass
        if (!name.startsWith("delayed")) expect(bits(true)).toEqual(bits(false));
        else expect(() => bits(true)).not.toThrow();
      }),
      { numRuns: draws(8, 4) },
    );
  });

  it("an f32 layer adds its bias rounded to bf16", () => {
    using _ = new Scope();
    const recipe = recipeByName(name);
    using layer = new Linear(backend(), 128, 128, { dtype: "f32", random: new RandomState(1n) });
    const bias = layer.bias?.tensor as Tensor<"f32">;
    const x = drawnTensor(backend(), 1, [128, 128], "f32");
    const out = (values: Tensor): string => {
      bias.paste(values as Tensor<"f32">, 0);
      return String(noGrad(() => autocast({ recipe }, () => layer.forward(x))).tensor.dataSync());
    };
    const f32Bias = drawnTensor(backend(), 2, [128], "f32");
    const roundedBias = castTo(castTo(f32Bias, "bf16"), "f32");
    expect(String(f32Bias.dataSync())).not.toBe(String(roundedBias.dataSync()));
    out(f32Bias);
    out(f32Bias);
    expect(out(f32Bias)).toBe(out(roundedBias));
  });
});

describe("fp8Grad is refused, before the backward pass computes anything, where the input", () => {
  const recipe = new Float8CurrentScaling();
  const programs: Record<string, (x: Variable, layer: Linear, previous: Linear) => Variable> = {
    "is a leaf": (x, layer) => layer.forward(x, { fp8Grad: true }),
    "is a function's": (x, layer) => layer.forward(activation(x, "relu"), { fp8Grad: true }),
    "is used elsewhere too": (x, layer, previous) => {
      const hidden = previous.forward(x);
      return add(layer.forward(hidden, { fp8Grad: true }), hidden);
    },
    // the region cannot know whether it is used outside
    "is captured by a recomputed region": (x, layer, previous) => {
      const hidden = previous.forward(x);
      return recompute(() => layer.forward(hidden, { fp8Grad: true }));
    },
    "is captured by a recomputed region and used outside of it": (x, layer, previous) => {
      const hidden = previous.forward(x);
      return add(
        recompute(() => layer.forward(hidden, { fp8Grad: true })),
        hidden,
      );
    },
  };

  it.each(Object.entries(programs))("%s", (_, run) => {
    using _scope = new Scope();
    using layer = new Linear(backend(), 32, 32, { fuseWgradAccumulation: true });
    using previous = new Linear(backend(), 32, 32);
    const mainGrad = zeros(backend(), "f32", [32, 32]);
    layer.weight.mainGrad = mainGrad;
    const [x, dy] = [1, 2].map((seed) => drawnTensor(backend(), seed, [32, 32], "bf16"));
    const y = autocast({ recipe }, () => run(new Variable(x as Tensor, true), layer, previous));
    expect(() => y.backward(dy)).toThrow(/fp8Grad .* Linear/);
    expect(mainGrad.dataSync()).toEqual(new Float32Array(32 * 32));
    expect(layer.bias?.grad).toBeUndefined();
  });

  it("but it is accepted if a Linear before it, or both, are recomputed", () => {
    const gradients = (["none", "before", "both"] as const).map((recomputedLayers) => {
      using _scope = new Scope();
      const [layer, previous] = [1n, 2n].map((seed) => {
        return new Linear(backend(), 32, 32, { random: new RandomState(seed) });
      }) as [Linear, Linear];
      const secondForward = (hidden: Variable): Variable => layer.forward(hidden, { fp8Grad: true });
      const recomputePart = (body: (x: Variable) => Variable, x: Variable): Variable =>
        recomputedLayers === "none" ? body(x) : recompute(body, x);
      const x = new Variable(drawnTensor(backend(), 1, [32, 32], "bf16"));
      const y = autocast({ recipe }, () => {
        const hidden = recomputePart((input) => previous.forward(input), x);
        return recomputedLayers === "both" ? recompute(secondForward, hidden) : secondForward(hidden);
      });
      y.backward(drawnTensor(backend(), 2, [32, 32], "bf16"));
      const bits = previous.weight.grad?.dataSync().slice();
      for (const module of [layer, previous]) module.dispose();
      return bits;
    });
    expect(gradients[0]).toBeDefined();
    for (const gradient of gradients) expect(gradient).toEqual(gradients[0]);
  });
});

describe("add", () => {
  it("gives each of its inputs the gradient in that input's type", () => {
    const types = fc.constantFrom(...WIDE_DTYPES);
    fc.assert(
      fc.property(types, types, fc.nat(), (leftType, rightType, seed) => {
        using _scope = new Scope();
        const [x, y] = [leftType, rightType].map((dtype, i) => {
          return new Variable(drawnTensor(backend(), seed + i, [3, 5], dtype), true);
        }) as [Variable, Variable];
        const dy = drawnTensor(backend(), seed + 2, [3, 5], leftType);
        add(x, y).backward(dy);
        expectSame("dx", x.grad, dy);
        expectSame("dy", y.grad, castTo(dy, rightType));
        for (const leaf of [x, y]) leaf.zeroGrad();
      }),
      { numRuns: draws(20) },
    );
  });
});

describe("dotProductAttention", () => {
  it("is two products and a softmax for each head, whatever the sizes", () => {
    const sizes = fc.record({
      batch: fc.integer({ min: 1, max: 2 }),
      length: fc.integer({ min: 1, max: 9 }),
      heads: fc.integer({ min: 1, max: 3 }),
      depth: fc.constantFrom(1, 4, 8, 16),
      causal: fc.boolean(),
      dtype: fc.constantFrom(...WIDE_DTYPES),
      seed: fc.nat(),
    });
    fc.assert(
      fc.property(sizes, ({ batch, length, heads, depth, causal, dtype, seed }) => {
        using _scope = new Scope();
        const x = new Variable(drawnTensor(backend(), seed, [batch, length, 3 * heads * depth], dtype), true);
        const dy = drawnTensor(backend(), seed + 1, [batch, length, heads * depth], dtype);
        const y = dotProductAttention(x, { heads, causal });
        y.backward(dy);
        const path = { datapath: dtype === "f32" ? "fp32" : "hopper" } as const;
        const scale = Math.fround(1 / Math.sqrt(depth));
        const [source, gradData] = [x.tensor.dataSync(), dy.dataSync()];
        const [result, gradient] = [y.tensor.dataSync(), (x.grad as Tensor<WideDType>).dataSync()];
        for (let item = 0; item < batch * heads; item++) {
          const [b, head] = [Math.floor(item / heads), item % heads];
          // the matrix of one head, which is one of `headCount` matrices concatenated along the columns
          const headOf = (data: typeof source, headCount: number, headIndex: number): Tensor => {
            const valueAt = (i: number): number =>
              (((b * length + Math.floor(i / depth)) * headCount + headIndex) * heads + head) * depth +
              (i % depth);
            const headValues = data.slice(0, length * depth).map((_, i) => data[valueAt(i)] as number);
            return tensor(backend(), headValues, [length, depth], dtype);
          };
          const [q, k, v] = [0, 1, 2].map((head) => headOf(source, 3, head)) as [Tensor, Tensor, Tensor];
          const grad = headOf(gradData, 1, 0);
          const scores = gemm({ a: k, b: q, outDtype: "f32", ...path }).out;
          const shares = softmax(scores, { causal, scale, outDtype: dtype });
          expectSame(
            "out",
            headOf(result, 1, 0),
            gemm({ a: v, b: shares, layout: "NN", outDtype: dtype, ...path }).out,
          );
          const dshares = gemm({ a: v, b: grad, outDtype: "f32", ...path }).out;
          const dscores = softmaxBackward(dshares, shares, { scale, outDtype: dtype });
          const options = { outDtype: dtype, ...path };
          expectSame("dq", headOf(gradient, 3, 0), gemm({ a: k, b: dscores, layout: "NN", ...options }).out);
          expectSame("dk", headOf(gradient, 3, 1), gemm({ a: q, b: dscores, layout: "NT", ...options }).out);
          expectSame(
            "dv",
            headOf(gradient, 3, 2),
            gemm({ a: grad, b: shares, layout: "NT", ...options }).out,
          );
        }
        x.zeroGrad();
      }),
      { numRuns: draws(30) },
    );
  });
});
