/** The library's recipe for a recipe in plain data. */
import {
  type CopyQuantizer,
  CustomRecipe,
  DelayedScaling,
  Float8BlockScaling,
  Float8CurrentScaling,
  HybridQuantizer,
  IdentityQuantizer,
  MXFP4Quantizer,
  MXFP6Quantizer,
  MXFP8BlockScaling,
  MXFP8Quantizer,
  NVFP4BlockScaling,
  type OperandQuantizer,
  type Quantizer,
  type Recipe,
  type Role,
} from "../../../../src/index.js";
import type { QuantizeSpec } from "../../../oracle/quantize/quantize.js";
import type { CopySpec, CustomRecipeModel, StepRecipe } from "../../../oracle/training/recipes.js";
import { RECIPES, type RecipeName } from "./options.js";

type CustomName = Extract<RecipeName, `custom${string}`>;

/** The standard recipes among the recipes of the cases, variants included. */
export const STANDARD_RECIPE_NAMES = (Object.keys(RECIPES) as RecipeName[]).filter(
  (name): name is Exclude<RecipeName, "none" | CustomName> => name !== "none" && !name.startsWith("custom"),
);

/** Recipes with custom quantizers. */
export const CUSTOM_RECIPE_NAMES = (Object.keys(RECIPES) as RecipeName[]).filter((name) =>
  name.startsWith("custom"),
);

/** The recipes that quantize gradients. */
export const GRADIENT_RECIPE_NAMES = STANDARD_RECIPE_NAMES.filter((name) => !("override" in RECIPES[name]));

/** The recipes under which one quantizer produces both copies of every operand, including custom quantizers. */
export const SINGLE_QUANTIZER_RECIPE_NAMES = [...GRADIENT_RECIPE_NAMES, "custom"] as const;

/** Layers divided among ranks refuse a recipe with row amaxes, because a rank has only a part of each row. */
export const ROW_SCALED = "nvfp4, row-scaled" satisfies RecipeName;

/** The recipes of layers that are divided among ranks. */
export const DIVIDED_LAYER_RECIPE_NAMES = STANDARD_RECIPE_NAMES.filter((name) => name !== ROW_SCALED);

/** A new recipe of the library for a name of the cases. */
export function recipeByName(name: RecipeName): Recipe {
  const recipe = libraryRecipe(RECIPES[name]);
  if (!recipe) throw new RangeError(`${name} is outside of regions`);
  return recipe;
}

/** Returns the recipe of a model; `attention` is the option of FP8 attention that it has. */
export function libraryRecipe(
  model: StepRecipe | undefined,
  attention: "wide" | "fp8Dpa" | "fp8Mha" = "wide",
): Recipe | undefined {
  if (!model) return undefined;
  const fp8 = attention === "wide" ? {} : { [attention]: true };
  const splitOptions = Object.entries(model.split ?? {}).map(([product, useSplitAccumulator]) => [
    product,
    { useSplitAccumulator },
  ]);
  const products = { ...Object.fromEntries(splitOptions), backwardOverride: model.override };
  switch (model.kind) {
    case "delayed": {
      const { format, margin, length: amaxHistoryLen, algorithm } = model;
      const amaxComputeAlgo = algorithm === "mostRecent" ? algorithm : "max";
      return new DelayedScaling({ ...products, ...fp8, format, margin, amaxHistoryLen, amaxComputeAlgo });
    }
    case "current": {
      const { format, pow2: pow2Scales, amaxEpsilon } = model;
      return new Float8CurrentScaling({ ...products, ...fp8, format, pow2Scales, amaxEpsilon });
    }
    case "block": {
      const { format, f32Scales: useF32Scales, amaxEpsilon, square } = model;
      const blockDimension = (owner: string): 1 | 2 => (square === owner ? 2 : 1);
      const dims = {
        xBlockScalingDim: blockDimension("x"),
        wBlockScalingDim: blockDimension("w"),
        gradBlockScalingDim: blockDimension("grad"),
      };
      return new Float8BlockScaling({ ...products, format, useF32Scales, amaxEpsilon, ...dims });
    }
    case "mxfp8":
      return new MXFP8BlockScaling({ ...products, format: model.format, enable2dQuantization: model.square });
    case "nvfp4": {
      const { rht, stochastic, square, fourOverSix, rowScaled } = model;
      return new NVFP4BlockScaling({
        ...products,
        disableRht: !rht,
        disableStochasticRounding: !stochastic,
        disable2dQuantization: !square,
        rowScaledActivation: rowScaled ?? false,
        ...(fourOverSix === "none"
          ? { fourOverSix }
          : { fourOverSix: "weights" as const, fourOverSixErrMode: fourOverSix }),
      });
    }
    case "custom":
      return new CustomRecipe({ ...products, quantizerFactory: (role) => roleQuantizer(model.specs[role]) });
  }
}

function roleQuantizer(spec: CustomRecipeModel["specs"][Role]): OperandQuantizer | null {
  if (spec === "identity") return null;
  if (!("rowwise" in spec)) return createQuantizer(spec);
  const copyQuantizer = (copySpec: CopySpec): CopyQuantizer =>
    copySpec === "identity" ? new IdentityQuantizer() : createQuantizer(copySpec);
  return new HybridQuantizer({
    rowwiseQuantizer: copyQuantizer(spec.rowwise),
    columnwiseQuantizer: copyQuantizer(spec.columnwise),
    columnwiseSource: spec.source,
  });
}

function createQuantizer({ quantizer, format, tile }: QuantizeSpec): Quantizer {
  const tileOption = tile === "32x32" ? { tile } : {};
  if (quantizer === "mxfp8")
    return new MXFP8Quantizer({ ...tileOption, format: format === "e5m2" ? format : "e4m3" });
  if (quantizer === "mxfp6")
    return new MXFP6Quantizer({ ...tileOption, format: format === "e3m2" ? format : "e2m3" });
  if (quantizer === "mxfp4") return new MXFP4Quantizer(tileOption);
  throw new RangeError(`no case has quantizers of ${quantizer}`);
}
