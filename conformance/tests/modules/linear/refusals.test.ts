import { autocast } from "../../../../src/autocast.js";
import { ArgumentError, DTypeError, ShapeError, UnsupportedError } from "../../../../src/errors.js";
import type { LinearCall, LinearOptions } from "../../../../src/modules/linear/parts.js";
import { Linear } from "../../../../src/modules/linear.js";
import { RMSNorm } from "../../../../src/modules/norm.js";
import { quantizedModelInit } from "../../../../src/modules/quantized-init.js";
import { zeros } from "../../../../src/ops/create.js";
import { Float8BlockQuantizer } from "../../../../src/quantizers/float8-block.js";
import { MXFP8Quantizer } from "../../../../src/quantizers/mx.js";
import { NVFP4Quantizer } from "../../../../src/quantizers/nvfp4.js";
import type { Quantizer } from "../../../../src/quantizers/quantizer.js";
import {
  Float8BlockScaling,
  MXFP8BlockScaling,
  NVFP4BlockScaling,
} from "../../../../src/recipes/block-scaled.js";
import { CustomRecipe } from "../../../../src/recipes/custom.js";
import { DelayedScaling, Float8CurrentScaling } from "../../../../src/recipes/per-tensor.js";
import type { Recipe } from "../../../../src/recipes/recipe.js";
import type { VariableLike } from "../../../../src/tape/differentiable.js";
import { noGrad } from "../../../../src/tape/grad-mode.js";
import type { Variable } from "../../../../src/tape/variable.js";
import type { DType, Shape } from "../../../../src/tensor/shape.js";
import type { Tensor } from "../../../../src/tensor/tensor.js";
import { rowsWhere } from "../../harness/modules/calls.js";
import { type Refusal, refusals, untyped } from "../../harness/refusals.js";
import { useBackend } from "../../harness/suite.js";

const SIZES = { rows: 32, from: 32, to: 32, middle: 32 };
const backend = useBackend({ threads: 1, datapath: "hopper" });
const otherBackend = useBackend({ threads: 1, datapath: "hopper" });

const zero = <D extends DType = "bf16">(shape: Shape, dtype = "bf16" as D): Tensor<D> =>
  zeros(backend(), dtype, shape);

/** One pass of a linear layer from 64 to 32 features, under a recipe or in high precision. */
function pass(
  recipe: Recipe | undefined,
  x: VariableLike = zero([32, 64]),
  { call, ...options }: LinearOptions & { readonly call?: LinearCall } = {},
): Variable {
  using layer = new Linear(backend(), 64, 32, options);
  return autocast(recipe ? { recipe } : { enabled: false }, () => layer.forward(x, call));
}

function backward(recipe: Recipe | undefined, x?: VariableLike, options?: LinearOptions): void {
  using layer = new Linear(backend(), 64, 32, options);
  const y = autocast(recipe ? { recipe } : { enabled: false }, () => layer.forward(x ?? zero([32, 64])));
  y.backward(zero([32, 32]));
}

const quantizeBy = (quantizer: Quantizer, usage = { rowwise: true, columnwise: false }) =>
  quantizer.setUsage(usage).quantize(zero([32, 64]));

refusals("recipes", [
  ...[DelayedScaling, Float8CurrentScaling, Float8BlockScaling, MXFP8BlockScaling].flatMap(
    (RecipeClass): Refusal[] => [
      [
        `${RecipeClass.name} of E5M2`,
        () => new RecipeClass({ format: "E5M2" }),
        ArgumentError,
        [RecipeClass.name, "E5M2", "HYBRID"],
      ],
      [
        `${RecipeClass.name} of E2M1`,
        () => new RecipeClass({ format: "E2M1" }),
        ArgumentError,
        [RecipeClass.name, "E2M1", "E4M3"],
      ],
      [
        `${RecipeClass.name} of no format`,
        () => new RecipeClass({ format: untyped("E3M4") }),
        ArgumentError,
        ["E3M4"],
      ],
      [
        `${RecipeClass.name} with an accumulator that is not an object`,
        () => new RecipeClass({ wgrad: untyped(true) }),
        ArgumentError,
        [RecipeClass.name, "wgrad", "useSplitAccumulator"],
      ],
    ],
  ),
  [
    "NVFP4 of E4M3",
    () => new NVFP4BlockScaling({ format: "E4M3" }),
    ArgumentError,
    ["NVFP4", "E4M3", "E2M1"],
  ],
  ["NVFP4 of HYBRID", () => new NVFP4BlockScaling({ format: "HYBRID" }), ArgumentError, ["HYBRID", "E2M1"]],
  [
    "NVFP4 with an unknown way to choose four or six",
    () => new NVFP4BlockScaling({ fourOverSixErrMode: untyped("l2") }),
    ArgumentError,
    ["fourOverSixErrMode", "l2", "mse"],
  ],
  ...(["fourOverSix", "e4m3Use256"] as const).map(
    (option): Refusal => [
      `NVFP4 with ${option} for tensors that there are not`,
      () => new NVFP4BlockScaling({ [option]: untyped("gradients") }),
      ArgumentError,
      [option, "gradients", "none, weights, activations, all"],
    ],
  ),
  ...(["activations", "all"] as const).map(
    (fourOverSix): Refusal => [
      `NVFP4 that chooses and transforms: ${fourOverSix}`,
      () => new NVFP4BlockScaling({ fourOverSix }),
      ArgumentError,
      [fourOverSix, "disableRht"],
    ],
  ),
  ...(["fprop", "dgrad", "wgrad"] as const).map(
    (product): Refusal => [
      `block scales without a split accumulator in ${product}`,
      () => new Float8BlockScaling({ [product]: { useSplitAccumulator: false } }),
      ArgumentError,
      [product, "split accumulator"],
    ],
  ),
  ...[{ xBlockScalingDim: 2 }, { gradBlockScalingDim: 2 }].map(
    (dims): Refusal => [
      `block scales for squares of two operands: ${Object.keys(dims)} beside weights`,
      () => new Float8BlockScaling(untyped(dims)),
      ArgumentError,
      ["wBlockScalingDim", ...Object.keys(dims), "128x128"],
    ],
  ),
  ...[0, 3, "2", "toString"].map(
    (wBlockScalingDim): Refusal => [
      `blocks of ${wBlockScalingDim} dimensions`,
      () => new Float8BlockScaling({ wBlockScalingDim: untyped(wBlockScalingDim) }),
      ArgumentError,
      ["wBlockScalingDim", String(wBlockScalingDim), "1 or 2"],
    ],
  ),
  ...[-1, Number.NaN, Number.POSITIVE_INFINITY].flatMap((amaxEpsilon) =>
    [Float8CurrentScaling, Float8BlockScaling].map(
      (RecipeClass): Refusal => [
        `${RecipeClass.name} with amaxEpsilon ${amaxEpsilon}`,
        () => new RecipeClass({ amaxEpsilon }),
        ArgumentError,
        [RecipeClass.name, "amaxEpsilon", String(amaxEpsilon)],
      ],
    ),
  ),
  ...[0, -1, 1.5, Number.NaN].map(
    (amaxHistoryLen): Refusal => [
      `a history of ${amaxHistoryLen} amaxes`,
      () => new DelayedScaling({ amaxHistoryLen }),
      ArgumentError,
      ["amaxHistoryLen", String(amaxHistoryLen)],
    ],
  ),
  ...[0.5, Number.NaN, 1000, -1000].map(
    (margin): Refusal => [
      `a margin of ${margin}`,
      () => new DelayedScaling({ margin }),
      ArgumentError,
      ["margin", String(margin)],
    ],
  ),
  [
    "an unknown way to choose an amax",
    () => new DelayedScaling({ amaxComputeAlgo: untyped("mean") }),
    ArgumentError,
    ["amaxComputeAlgo", "mean", "mostRecent"],
  ],
  [
    "a scaling factor that is not a function",
    () => new DelayedScaling({ scalingFactorComputeAlgo: untyped(2) }),
    ArgumentError,
    ["scalingFactorComputeAlgo", "function"],
  ],
  [
    "a custom recipe without a factory",
    () => new CustomRecipe(untyped({})),
    ArgumentError,
    ["quantizerFactory"],
  ],
  [
    "a factory that makes no quantizer",
    () => pass(new CustomRecipe({ quantizerFactory: () => untyped(undefined) })),
    ArgumentError,
    ["quantizerFactory", "input", "quantizer"],
  ],
]);

refusals("autocast and quantizedModelInit", [
  [
    "the class of a recipe",
    () => autocast({ recipe: untyped(DelayedScaling) }, () => 1),
    ArgumentError,
    ["autocast", "recipe", "new DelayedScaling()"],
  ],
  [
    "the name of a recipe",
    () => autocast({ recipe: untyped("mxfp8") }, () => 1),
    ArgumentError,
    ["autocast", "mxfp8"],
  ],
  [
    "the name of a recipe for weights",
    () => quantizedModelInit({ recipe: untyped("mxfp8") }, () => 1),
    ArgumentError,
    ["quantizedModelInit", "mxfp8"],
  ],
  [
    "weights quantized for another recipe",
    () => {
      using layer = quantizedModelInit(
        { recipe: new MXFP8BlockScaling() },
        () => new Linear(backend(), 64, 32),
      );
      autocast({ recipe: new Float8CurrentScaling() }, () => layer.forward(zero([32, 64])));
    },
    ArgumentError,
    ["mxfp8", "Float8CurrentScaling", "quantizedModelInit", "same recipe"],
  ],
  [
    "weights quantized with other options of the same recipe",
    () => {
      const recipe = new Float8BlockScaling({ useF32Scales: true });
      using layer = quantizedModelInit({ recipe }, () => new Linear(backend(), 64, 32));
      autocast({ recipe: new Float8BlockScaling() }, () => layer.forward(zero([32, 64])));
    },
    ArgumentError,
    ["pow2Scales", "same recipe"],
  ],
  [
    "a quantized weight outside of autocast with an input of another type",
    () => {
      using layer = quantizedModelInit(
        { recipe: new MXFP8BlockScaling() },
        () => new Linear(backend(), 64, 32),
      );
      layer.forward(zero([32, 64], "f32"));
    },
    DTypeError,
    ["f32", "quantized weight", "bf16"],
  ],
]);

refusals("linear layers under a recipe", [
  [
    "columns that are no multiple of 16",
    () => {
      using layer = new Linear(backend(), 24, 32);
      autocast({ recipe: new Float8CurrentScaling() }, () => layer.forward(zero([32, 24])));
    },
    ShapeError,
    ["[32,24]", "16", "pad"],
  ],
  [
    "MXFP8 of columns that are no multiple of 32",
    () => {
      using layer = new Linear(backend(), 48, 32);
      autocast({ recipe: new MXFP8BlockScaling() }, () => layer.forward(zero([1, 48])));
    },
    ShapeError,
    ["input", "[1,48]", "48", "32", "pad to 64"],
  ],
  [
    "features whose gradient has blocks that do not divide it",
    () => {
      using layer = new Linear(backend(), 64, 48);
      autocast({ recipe: new MXFP8BlockScaling() }, () => layer.forward(zero([1, 64])));
    },
    ShapeError,
    ["the weight is [48,64]", "gradient", "mxfp8", "pad to 64"],
  ],
  [
    "a Hadamard transform of f32",
    () => pass(new NVFP4BlockScaling(), zero([32, 64], "f32")),
    ArgumentError,
    ["Hadamard", "bf16", "f32"],
  ],
  [
    "to keep the input under delayed scaling",
    () => pass(new DelayedScaling(), zero([32, 64]), { saveOriginalInput: true }),
    ArgumentError,
    ["saveOriginalInput", "DelayedScaling"],
  ],
  [
    "a quantized input without its rowwise copy",
    () =>
      pass(
        new Float8BlockScaling(),
        quantizeBy(new Float8BlockQuantizer(), { rowwise: false, columnwise: true }),
      ),
    ArgumentError,
    ["rowwise"],
  ],
  [
    "a quantized input whose columnwise copy the backward pass needs",
    () => pass(new MXFP8BlockScaling(), quantizeBy(new MXFP8Quantizer())),
    ArgumentError,
    ["columnwise", "mxfp8", "quantize the source"],
  ],
  [
    "an input that is quantized otherwise than the weight",
    () => noGrad(() => pass(new Float8CurrentScaling(), quantizeBy(new NVFP4Quantizer()))),
    UnsupportedError,
    ["gemm", "hopper", "e2m1", "e4m3"],
  ],
  [
    "main gradients where there is none",
    () => backward(new Float8CurrentScaling(), undefined, { fuseWgradAccumulation: true }),
    ArgumentError,
    ["fuseWgradAccumulation", "mainGrad", "f32"],
  ],
  [
    "a flag for the cached weight that is not one f32",
    () =>
      pass(new Float8CurrentScaling(), undefined, {
        call: { skipFp8WeightUpdate: untyped(zero([2], "f32")) },
      }),
    ShapeError,
    ["skipFp8WeightUpdate", "[2]"],
  ],
]);

refusals("linear layers", [
  ["an input of other features", () => pass(undefined, zero([32, 16])), ShapeError, ["[32,16]", "[32,64]"]],
  [
    "an input of another type than the parameters",
    () => pass(undefined, zero([32, 64], "f32")),
    DTypeError,
    ["f32", "bf16", "outside of autocast"],
  ],
  [
    "an input on another backend",
    () => pass(undefined, zeros(otherBackend(), "bf16", [32, 64])),
    ArgumentError,
    ["different backends"],
  ],
  [
    "an input on another backend under a recipe",
    () => pass(new MXFP8BlockScaling(), zeros(otherBackend(), "bf16", [32, 64])),
    ArgumentError,
    ["different backends"],
  ],
  ["an input of integers", () => pass(undefined, zero([32, 64], "i32")), DTypeError, ["i32", "bf16"]],
  [
    "an input of integers under a recipe",
    () => pass(new DelayedScaling(), zero([32, 64], "i32")),
    DTypeError,
    ["i32", "bf16"],
  ],
  [
    "a quantized result without a recipe",
    () => pass(undefined, undefined, { call: { fp8Output: true } }),
    ArgumentError,
    ["fp8Output", "autocast"],
  ],
  [
    "a quantized gradient without a recipe",
    () => pass(undefined, undefined, { call: { fp8Grad: true } }),
    ArgumentError,
    ["fp8Grad", "autocast"],
  ],
  ...[0, -8, 1.5, Number.NaN].flatMap((features): Refusal[] => [
    ...rowsWhere().flatMap(([name, row]) =>
      Object.entries(row.sizes).map(
        ([argument, size]): Refusal => [
          `${argument} of ${name}: ${features}`,
          () => row.build(backend(), { ...SIZES, [size]: features }),
          ArgumentError,
          [argument, String(features)],
        ],
      ),
    ),
  ]),
  [
    "parameters of codes",
    () => new Linear(backend(), 64, 32, { dtype: untyped("e4m3") }),
    DTypeError,
    ["e4m3", "bf16"],
  ],
  [
    "parameters of f64",
    () => new RMSNorm(backend(), 64, { dtype: untyped("f64") }),
    DTypeError,
    ["f64", "f32"],
  ],
  [
    "initial values that are too few",
    () => new Linear(backend(), 64, 32, { initMethod: () => new Float32Array(3) }),
    ShapeError,
    ["[32,64]", "initMethod", "3"],
  ],
]);
