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
const quantizer = (): MXFP8Quantizer => new MXFP8Quantizer();
const highPrecision = (): IdentityQuantizer => new IdentityQuantizer();
const hybrid = (rowwiseQuantizer: CopyQuantizer, columnwiseQuantizer: CopyQuantizer): HybridQuantizer =>
  new HybridQuantizer({ rowwiseQuantizer, columnwiseQuantizer });

/** A recipe with these quantizers, and MXFP8 for other roles. */
const recipeOf = (makers: Partial<Record<Role, () => OperandQuantizer | null>>): CustomRecipe =>
  new CustomRecipe({ quantizerFactory: (role) => (makers[role] ?? quantizer)() });

const sample = (offset: bigint): Tensor =>
  encode(tensor(backend(), normal({ seed: 1n, offset }, 32 * SIZE, 1), [32, SIZE]), { format: "bf16" });
const layer = (): Linear => new Linear(backend(), SIZE, SIZE, { random: new RandomState(2n) });

describe("a product of an operand that is quantized and one that is not", () => {
  const cases = [
    ["fprop", { input: highPrecision }],
    ["fprop", { weight: () => null }],
    ["dgrad", { weight: () => hybrid(quantizer(), highPrecision()) }],
    ["dgrad", { gradOutput: () => hybrid(highPrecision(), quantizer()) }],
    ["wgrad", { input: () => hybrid(quantizer(), highPrecision()) }],
    ["wgrad", { gradOutput: () => hybrid(quantizer(), highPrecision()) }],
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
    const plainRecipe = new MXFP8BlockScaling();
    using otherLayer = layer();
    const bits = (module: Linear) => [
      ...autocast({ recipe: plainRecipe }, () => module.forward(x)).tensor.dataSync(),
    ];
    expect(bits(module)).toEqual(bits(otherLayer));
  });
});

it("null for every role computes the bits of high precision, forward and backward", () => {
  using _ = new Scope();
  const run = (forward: (module: Linear, hidden: Variable) => Variable): unknown => {
    using module = layer();
    const hidden = new Variable(sample(1n), true);
    const y = forward(module, hidden);
    y.backward(sample(2n) as Tensor<"bf16">);
    const results = [y.tensor, hidden.grad, module.weight.grad, module.bias?.grad].map((tensor) => [
      ...(tensor as Tensor).dataSync(),
    ]);
    hidden.zeroGrad();
    return results;
  };
  const recipe = new CustomRecipe({ quantizerFactory: () => null });
  const quantizedResults = run((module, hidden) =>
    autocast({ recipe }, () => module.forward(hidden, { fp8Output: true })),
  );
  expect(quantizedResults).toEqual(run((module, hidden) => module.forward(hidden)));
});

it("a result is quantized by the rowwise quantizer of its role", () => {
  using _ = new Scope();
  using module = layer();
  const y = (output: () => OperandQuantizer): unknown => {
    const { value } = autocast({ recipe: recipeOf({ output }) }, () =>
      module.forward(sample(1n), { fp8Output: true }),
    );
    return value instanceof QuantizedTensor ? value.members.map((member) => [...member.dataSync()]) : "wide";
  };
  expect(y(() => hybrid(quantizer(), highPrecision()))).toEqual(y(quantizer));
  expect(y(() => hybrid(highPrecision(), quantizer()))).toBe("wide");
});

it("quantizedModelInit leaves a weight in high precision, and refuses one with two quantizers", () => {
  using _ = new Scope();
  using quantizedLayer = quantizedModelInit({ recipe: recipeOf({ weight: highPrecision }) }, layer);
  expect(quantizedLayer.weight.value).not.toBeInstanceOf(QuantizedTensor);
  const recipe = recipeOf({ weight: () => hybrid(quantizer(), quantizer()) });
  expect(() => quantizedModelInit({ recipe }, layer)).toThrow(/HybridQuantizer for weight/);
  using quantized = quantizedModelInit({ recipe: recipeOf({}) }, layer);
  expect(() => autocast({ recipe }, () => quantized.forward(sample(1n)))).toThrow(
    /the weight is quantized in another way/,
  );
});

it("LayerQuantization refuses a tensor whose copies have no common quantizer", () => {
  using _ = new Scope();
  using module = layer();
  const ownQuantization = new LayerQuantization(module.weight);
  const call = autocast(
    { recipe: recipeOf({ input: () => hybrid(quantizer(), quantizer()), gradOutput: highPrecision }) },
    () => ownQuantization.begin(),
  );
  expect(() => call?.quantizer("input")).toThrow(/HybridQuantizer for input/);
  expect(() => call?.backward.quantizer("gradOutput")).toThrow(/IdentityQuantizer for gradOutput/);
  expect(call?.quantizer("output")).toBeInstanceOf(MXFP8Quantizer);
  ownQuantization.dispose();
});
