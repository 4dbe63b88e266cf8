/**
 * The plan of a training step: compatible options, sizes, and everything derived from them that the library and the
 * model need.
 */

import { words } from "../../../arbitraries/random.js";
import type { WideName } from "../../../oracle/quantize/quantize.js";
import type { StepRecipe } from "../../../oracle/training/recipes.js";
import {
  MICROBATCHES,
  type MicrobatchCall,
  OPTIMIZERS,
  RECIPES,
  type RecipeName,
  type StepActions,
  type StepActivation,
  type StepOptions,
} from "./options.js";

export type CellKind =
  | ("linear" | "norm" | "normLinear" | "returned" | "attention")
  | ("between" | "activation" | "gate" | "mlp");

/** One or a few layers that form a unit, with their numbers of input and output features. */
export interface CellPlan {
  readonly layer: CellKind;
  readonly wrap: StepOptions["wrap"];
  readonly from: number;
  readonly to: number;
  /** The number of features between the two layers of `mlp` and `between`. */
  readonly middle: number;
}

/** Compatible options, and everything that the library and the model need to know. */
export interface StepPlan extends Omit<StepOptions, "recipe" | "layer"> {
  readonly recipe: RecipeName;
  /** The recipe in plain data; undefined outside of a region. */
  readonly quantization: StepRecipe | undefined;
  readonly activation: StepActivation;
  readonly seed: number;
  readonly rows: number;
  readonly features: number;
  readonly vocabulary: number;
  readonly cells: readonly CellPlan[];
  readonly calls: readonly MicrobatchCall[];
  /** True for an evaluation: nothing is recorded for a backward pass, and no scale is updated. */
  readonly evaluates: boolean;
  readonly steps: number;
  /** The actions of the steps, cyclically. Default: `calls` and `stepping` for all steps. */
  readonly actions?: readonly StepActions[];
}

export function stepActions({ actions = [], calls, stepping }: StepPlan, step: number): StepActions {
  const entry = actions[step % Math.max(actions.length, 1)];
  return entry ?? { calls, stepping, zeroes: true, evaluated: undefined, recipe: undefined, state: "kept" };
}

/** The index of the call without gradients among the calls of a step. */
export const EVALUATION = 9;

/** The number of attention heads. Rows belong to two items of a batch. */
export const HEADS = 2;
export const BATCH = 2;

/** The number of rows in a block, and the number that a recipe requires features to be multiples of. */
function blockMultiples(kind: StepOptions["recipe"]): readonly [rows: number, features: number] {
  if (kind === "mxfp8" || kind === "custom") return [32, 32];
  if (kind === "nvfp4") return [16, 16];
  return kind === "none" ? [2, 2] : [8, 16];
}

/** The recipe that a variant number selects from a class. */
function recipeName({ recipe, variant }: StepOptions): RecipeName {
  const names = (Object.keys(RECIPES) as RecipeName[]).filter((name) => name.split(",")[0] === recipe);
  return names[variant % names.length] as RecipeName;
}

/** A plan for the options. Incompatible options are replaced by compatible ones; sizes are derived from the seed. */
export function createPlan(options: StepOptions, seed: number, steps = 2): StepPlan {
  const { wrap, around, start } = options;
  const name = recipeName(options);
  const recipe: StepRecipe | undefined = RECIPES[name];
  const [layer, , activation = "gelu"] = options.layer.split(" ") as [CellKind, string?, StepActivation?];
  // the Hadamard transform takes bf16 only; outside of a recipe, input and parameters have the same type
  const usesHadamard = recipe?.kind === "nvfp4" && recipe.rht;
  const parameters = usesHadamard && start === "embedding" ? "bf16" : options.parameters;
  const input = usesHadamard ? "bf16" : recipe ? options.input : parameters;
  const savesOriginal = options.savesOriginal && recipe?.kind !== "delayed";
  const [blockRows, featureUnit] = blockMultiples(options.recipe);
  const draws = words(seed, 8);
  // a multiple of the rows of a block, or any even number of rows
  const rowUnit = (draws[6] as number) % 2 === 0 ? blockRows : BATCH;
  const multiplier = (index: number, maximum: number): number => 1 + ((draws[index] as number) % maximum);
  const size = (index: number): number => featureUnit * multiplier(index, 32 / featureUnit);
  const features = size(1);
  const keepsFeatures =
    wrap === "residual" || wrap === "twice" || ["norm", "returned", "mlp", "activation"].includes(layer);
  const [before, after] = ["before", "behind"].map((side) => around === side || around === "both");
  const from = before ? size(2) : features;
  const to = keepsFeatures ? from : size(3);
  const linearCell = { layer: "linear", wrap: "plain", middle: 0 } as const;
  return {
    ...{ ...options, recipe: name, activation, parameters, input, savesOriginal },
    quantization: recipe && { ...recipe, override: recipe.override ?? options.override },
    seed,
    rows: rowUnit * multiplier(0, 16 / Math.min(rowUnit, 16)),
    features,
    vocabulary: start === "embedding" ? 5 : 0,
    cells: [
      ...(before ? [{ ...linearCell, from: features, to: from }] : []),
      { layer, wrap, from, to, middle: size(4) },
      ...(after ? [{ ...linearCell, from: to, to: size(5) }] : []),
    ],
    calls: MICROBATCHES[options.microbatches],
    evaluates: false,
    steps,
  };
}

/**
 * Whether the values between two layers may be quantized by the first layer, in which case the second one derives the other copy
 * from the codes.
 */
export function mayPassCodes({ quantization, evaluates }: StepPlan): boolean {
  const kind = quantization?.kind;
  if (evaluates) return kind !== undefined;
  return kind === "delayed" || kind === "current";
}

/**
 * Whether the model's parameter number `i`, called `name`, is frozen. With `beforeStep`, it is frozen after its gradient is
 * computed and before the optimizer step.
 */
export function isFrozen({ frozen, seed }: StepPlan, name: string, i: number, beforeStep = false): boolean {
  const kind = /[lL]ayerNorm|norm\./.test(name) ? "norms" : /[bB]ias$/.test(name) ? "biases" : "weights";
  if (frozen === "nothing") return false;
  if (frozen === "weights, late") return beforeStep && kind === "weights";
  if (frozen === "drawn") return (words(seed + 77 + i, 1)[0] as number) % 2 === 0;
  return frozen.startsWith("all but ") ? frozen !== `all but ${kind}` : frozen === kind;
}

/** Numbers of magnitude about `scale` that every wide type can represent; the plan may add special values. */
export function drawNumbers(
  { values }: Pick<StepPlan, "values">,
  seed: number,
  shape: readonly [rows: number, columns: number],
  scale = 1,
): Float32Array {
  const [rows, columns] = shape;
  const randomBits = words(seed, rows * columns);
  return Float32Array.from(randomBits, (word, i) => {
    const magnitude = (1 + (word & 127) / 128) * 2 ** -((word >>> 7) & 3) * scale;
    const value = word >>> 31 ? -magnitude : magnitude;
    if (values === "outliers") return (word >>> 10) % 37 === 0 ? 64 * value : value;
    const isZero = values === "zeros" && ((word >>> 10) % 3 === 0 || Math.floor(i / columns) % 5 === 1);
    return isZero ? 0 : value;
  });
}

/** The type of the activations between layers. */
export function activationType({ start, parameters, input }: StepPlan): WideName {
  return start === "embedding" ? parameters : input;
}

/** A class for each row. */
export function drawClasses(seed: number, count: number, limit: number): number[] {
  return Array.from(words(seed, count), (word) => word % limit);
}

export const SMOOTHING_OPTIONS = { smoothing: 0.25, ignore: 1 } as const;
export const GRAD_SCALE = 0.375;
export const MAX_NORM = 0.5;

export function optimizerOptions({ optimizer }: StepPlan) {
  return OPTIMIZERS[optimizer];
}
