/** Whether a backend computes what a recipe asks for. */
import { type Backend, requireBackend } from "../backends/backend.js";
import { UnsupportedError } from "../errors.js";
import { datapathFor, hasBlockScaling, isEmulated } from "../formats/datapath.js";
import { linesOf } from "../ops/gemm/operand.js";
import { RandomState } from "../quantizers/quantizer.js";
import type { Direction, QuantizedTensor } from "../tensor/quantized.js";
import { Scope } from "../tensor/scope.js";
import { Tensor } from "../tensor/tensor.js";
import { MXFP8BlockScaling } from "./block-scaled.js";
import { DelayedScaling } from "./per-tensor.js";
import { quantizerFor } from "./quantizer-for.js";
import { type Recipe, requireRecipe, StandardRecipe } from "./recipe.js";
import type { Product, Role } from "./table.js";

/** A backend's answer about a recipe. */
export type RecipeSupport =
  | {
      readonly ok: true;
      /** Set where the chip multiplies other formats than the recipe's; says which. */
      readonly emulated?: string;
    }
  | { readonly ok: false; readonly reason: string };

/** The operands of each product, and the direction in which each is scaled (numerics.md §6.1). */
const OPERANDS = [
  { name: "fprop", a: "weight", b: "input", along: ["rowwise", "rowwise"] },
  { name: "dgrad", a: "weight", b: "gradOutput", along: ["columnwise", "rowwise"] },
  { name: "wgrad", a: "input", b: "gradOutput", along: ["columnwise", "columnwise"] },
] as const satisfies readonly {
  readonly name: Product;
  readonly a: Role;
  readonly b: Role;
  readonly along: readonly [Direction, Direction];
}[];

/** Rows and columns of the matrices in the question to the backend; all formats take them. */
const SIZE = 128;

const answers = new WeakMap<Backend, Map<string, RecipeSupport>>();

/**
 * Whether `backend` computes all products of a layer under `recipe`, and how. For a custom recipe the answer is always yes;
 * each product is checked when it runs.
 *
 * @throws `ArgumentError` if `recipe` is not a recipe or `backend` not a backend, `DisposedError` for a backend that was
 * disposed of.
 */
export function checkRecipeSupport(recipe: Recipe, backend: Backend): RecipeSupport {
  requireRecipe("checkRecipeSupport", recipe);
  requireBackend("checkRecipeSupport", backend);
  if (!(recipe instanceof StandardRecipe)) return { ok: true };
  const known = answers.get(backend) ?? new Map<string, RecipeSupport>();
  answers.set(backend, known);
  const { key } = recipe;
  const answer = known.get(key) ?? ask(recipe, backend);
  known.set(key, answer);
  return answer;
}

/**
 * TransformerEngine's choice: MXFP8 where the chip has it, else per-tensor FP8 with delayed scaling.
 *
 * @throws `ArgumentError` for anything but a backend, `DisposedError` for a backend that was disposed of.
 */
export function getDefaultRecipe(backend: Backend): StandardRecipe {
  requireBackend("getDefaultRecipe", backend);
  const mxfp8 = new MXFP8BlockScaling();
  const support = checkRecipeSupport(mxfp8, backend);
  return support.ok && hasBlockScaling(backend.datapath) ? mxfp8 : new DelayedScaling();
}

/** Throws `UnsupportedError` with the backend's reason if it does not support `recipe`. */
export function requireRecipeSupport(recipe: Recipe, backend: Backend): void {
  const support = checkRecipeSupport(recipe, backend);
  if (!support.ok) throw new UnsupportedError(recipe.constructor.name, support.reason);
}

function ask(recipe: StandardRecipe, backend: Backend): RecipeSupport {
  using _ = new Scope();
  const scale = new Tensor(backend, "f32", [1]);
  const operand = (role: Role): QuantizedTensor =>
    quantizerFor(recipe, role, { scale, random: new RandomState(0n) })
      .setUsage({ rowwise: true, columnwise: true })
      .makeEmpty(backend, [SIZE, SIZE]);
  const operands = { input: operand("input"), weight: operand("weight"), gradOutput: operand("gradOutput") };
  const { datapath } = backend;
  let emulated = false;
  for (const { name, a, b, along } of OPERANDS) {
    const w = linesOf("a", operands[a], { direction: along[0], readsScales: false });
    const x = linesOf("b", operands[b], { direction: along[1], readsScales: false });
    const splitAccumulator = recipe[name].useSplitAccumulator;
    const numbers = { alpha: 1, beta: 0, outScale: 1, splitK: 1, splitAccumulator };
    const out = new Tensor(backend, "bf16", [SIZE, SIZE]);
    const support = backend.supports("gemm", { x, w, datapath, out, ...numbers });
    if (!support.ok) return { ok: false, reason: `${name}: ${support.reason}` };
    const choice = datapathFor(datapath, x.traits, w.traits, splitAccumulator);
    emulated ||= choice.ok && isEmulated(choice);
  }
  return emulated
    ? {
        ok: true,
        emulated: `${datapath} has no instruction for these block scales: values are rounded to bf16, which is exact but at the ends of its range, and multiplied as bf16`,
      }
    : { ok: true };
}
