/**
 * Layers whose copies have different quantizers or none: refusals, high precision, and results. The bits of steps are compared in
 * laws/training-steps-equal-plain-arithmetic.
 */
import { describe, expect, it } from "vitest";
import {
  ArgumentError,
  autocast,
  type CopyQuantizer,
  CustomRecipe,
  checkRecipeSupport,
  encode,
  HybridQuantizer,
  IdentityQuantizer,
  LayerQuantization,
  Linear,
  MXFP8BlockScaling,
  MXFP8Quantizer,
  normal,
  type OperandQuantizer,
  QuantizedTensor,
  quantizedModelInit,
  RandomState,
  type Role,
  Scope,
  type Tensor,
  tensor,
  Variable,
} from "../../../../src/index.js";
import { useBackend } from "../../harness/suite.js";

const backend = useBackend({ threads: 1, datapath: "exact" });
const SIZE = 64;
const q = (): MXFP8Quantizer => new MXFP8Quantizer();
const wide = (): IdentityQuantizer => new IdentityQuantizer();
const hybrid = (rowwiseQuantizer: CopyQuantizer, columnwiseQuantizer: CopyQuantizer): HybridQuantizer =>
  new HybridQuantizer({ rowwiseQuantizer, columnwiseQuantizer });

/** A recipe with these quantizers, and MXFP8 for other roles. */
const recipeOf = (makers: Partial<Record<Role, () => OperandQuantizer | null>>): CustomRecipe =>
  new CustomRecipe({ quantizerFactory: (role) => (makers[role] ?? q)() });

const sample = (offset: bigint): Tensor =>
  encode(tensor(backend(), normal({ seed: 1n, offset }, 32 * SIZE, 1), [32, SIZE]), { format: "bf16" });
const layer = (): Linear => new Linear(backend(), SIZE, SIZE, { random: new RandomState(2n) });

describe("a product of an operand that is quantized and one that is not", () => {
  const cases = [
    ["fprop", { input: wide }],
    ["fprop", { weight: () => null }],
    ["dgrad", { weight: () => hybrid(q(), wide()) }],
    ["dgrad", { gradOutput: () => hybrid(wide(), q()) }],
    ["wgrad", { input: () => hybrid(q(), wide()) }],
    ["wgrad", { gradOutput: () => hybrid(q(), wide()) }],
  ] as const;

  it.each(cases)("is refused before anything has changed: %s", (product, makers) => {
    using _ = new Scope();
    using module = layer();
    const recipe = recipeOf(makers);
    const x = new Variable(sample(1n), true);
    const forward = () => autocast({ recipe }, () => module.forward(x));
    expect(forward).toThrow(ArgumentError);
    expect(forward).toThrow(
      new RegExp(`${product} multiplies .* in high precision; give quantizers for both`),
    );
    expect(checkRecipeSupport(recipe, backend())).toMatchObject({
      ok: false,
      reason: expect.stringMatching(new RegExp(`^${product}: .* in high precision`)),
    });
    const plain = new MXFP8BlockScaling();
    using other = layer();
    const bits = (each: Linear) => [...autocast({ recipe: plain }, () => each.forward(x)).tensor.dataSync()];
    expect(bits(module)).toEqual(bits(other));
  });
});

it("null for every role computes the bits of high precision, forward and backward", () => {
  using _ = new Scope();
  const run = (forward: (module: Linear, h: Variable) => Variable): unknown => {
    using module = layer();
    const h = new Variable(sample(1n), true);
    const y = forward(module, h);
    y.backward(sample(2n) as Tensor<"bf16">);
    const found = [y.tensor, h.grad, module.weight.grad, module.bias?.grad].map((each) => [
      ...(each as Tensor).dataSync(),
    ]);
    h.zeroGrad();
    return found;
  };
  const recipe = new CustomRecipe({ quantizerFactory: () => null });
  const seen = run((module, h) => autocast({ recipe }, () => module.forward(h, { fp8Output: true })));
  expect(seen).toEqual(run((module, h) => module.forward(h)));
});

it("a result is quantized by the rowwise quantizer of its role", () => {
  using _ = new Scope();
  using module = layer();
  const y = (output: () => OperandQuantizer): unknown => {
    const { value } = autocast({ recipe: recipeOf({ output }) }, () =>
      module.forward(sample(1n), { fp8Output: true }),
    );
    return value instanceof QuantizedTensor ? value.members.map((each) => [...each.dataSync()]) : "wide";
  };
  expect(y(() => hybrid(q(), wide()))).toEqual(y(q));
  expect(y(() => hybrid(wide(), q()))).toBe("wide");
});

it("quantizedModelInit leaves a weight in high precision, and refuses one with two quantizers", () => {
  using _ = new Scope();
  using kept = quantizedModelInit({ recipe: recipeOf({ weight: wide }) }, layer);
  expect(kept.weight.value).not.toBeInstanceOf(QuantizedTensor);
  const recipe = recipeOf({ weight: () => hybrid(q(), q()) });
  expect(() => quantizedModelInit({ recipe }, layer)).toThrow(/HybridQuantizer for weight/);
  using quantized = quantizedModelInit({ recipe: recipeOf({}) }, layer);
  expect(() => autocast({ recipe }, () => quantized.forward(sample(1n)))).toThrow(
    /the weight is quantized in another way/,
  );
});

it("LayerQuantization refuses a tensor whose copies have no common quantizer", () => {
  using _ = new Scope();
  using module = layer();
  const own = new LayerQuantization(module.weight);
  const call = autocast({ recipe: recipeOf({ input: () => hybrid(q(), q()), gradOutput: wide }) }, () =>
    own.begin(),
  );
  expect(() => call?.quantizer("input")).toThrow(/HybridQuantizer for input/);
  expect(() => call?.backward.quantizer("gradOutput")).toThrow(/IdentityQuantizer for gradOutput/);
  expect(call?.quantizer("output")).toBeInstanceOf(MXFP8Quantizer);
  own.dispose();
});
