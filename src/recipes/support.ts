/** Tests whether a backend supports a recipe. */
import { type Backend, requireBackend } from "../backends/backend.js";
import { UnsupportedError } from "../errors.js";
import { datapathFor, hasBlockScaling, isEmulated } from "../formats/datapath.js";
import { linesOf } from "../ops/gemm/operand.js";
import { transformed, transformFault } from "../ops/gemm/transform.js";
import { emptyQuantized } from "../ops/quantize/target.js";
import type { Quantizer } from "../quantizers/quantizer.js";
import { RandomState } from "../quantizers/random-state.js";
import type { Direction, QuantizedTensor } from "../tensor/quantized.js";
import { Scope } from "../tensor/scope.js";
import { Tensor } from "../tensor/tensor.js";
import { MXFP8BlockScaling } from "./block-scaled.js";
import { DelayedScaling } from "./per-tensor.js";
import { roleQuantizerFor } from "./quantizer-for.js";
import { type Recipe, requireRecipe, StandardRecipe } from "./recipe.js";
import { codesQuantizer, copiesOf, type RoleCopies, UNNAMED } from "./role.js";
import type { Product, Role } from "./table.js";

/** The answer of `checkRecipeSupport`. */
export type RecipeSupport =
  | {
      readonly ok: true;
      /** Set if the chip multiplies values in another format than the recipe's. The text says which. */
      readonly emulated?: string;
    }
  | { readonly ok: false; readonly reason: string };

/** The operands of each product, and whether it reads the rowwise or the columnwise copy of each (numerics.md §6.1). */
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

/** The size of the square matrices in the queries to the backend. All formats support it. */
const SIZE = 128;

const answers = new WeakMap<Backend, Map<string, RecipeSupport>>();

/**
 * Returns whether `backend` supports all products of a linear layer under `recipe`. The operands of each product must also have
 * passed through the same Hadamard transform. For a custom recipe this calls its `quantizerFactory` for the input, the weight and
 * the gradient of the result; its errors propagate.
 *
 * @throws `ArgumentError` if `recipe` is not a recipe or `backend` not a backend, `DisposedError` for a disposed backend.
 */
export function checkRecipeSupport(recipe: Recipe, backend: Backend): RecipeSupport {
  requireRecipe("checkRecipeSupport", recipe);
  requireBackend("checkRecipeSupport", backend);
  if (!(recipe instanceof StandardRecipe)) return answerOf(recipe, backend);
  const cached = answers.get(backend) ?? new Map<string, RecipeSupport>();
  answers.set(backend, cached);
  const { key } = recipe;
  const answer = cached.get(key) ?? answerOf(recipe, backend);
  cached.set(key, answer);
  return answer;
}

/**
 * Returns TransformerEngine's default recipe for the backend: MXFP8 if its chip has instructions for it, else per-tensor FP8
 * with delayed scaling.
 *
 * @throws `ArgumentError` for an argument that is not a backend, `DisposedError` for a disposed backend.
 */
export function getDefaultRecipe(backend: Backend): StandardRecipe {
  requireBackend("getDefaultRecipe", backend);
  const mxfp8 = new MXFP8BlockScaling();
  const support = checkRecipeSupport(mxfp8, backend);
  return support.ok && hasBlockScaling(backend.datapath) ? mxfp8 : new DelayedScaling();
}

/**
 * Throws `UnsupportedError` with the backend's reason if the backend does not support `recipe`. A custom recipe is not checked
 * here: layers check the quantizers that its factory makes for them, and each product when it runs.
 */
export function requireRecipeSupport(recipe: Recipe, backend: Backend): void {
  if (!(recipe instanceof StandardRecipe)) return;
  const support = checkRecipeSupport(recipe, backend);
  if (!support.ok) throw new UnsupportedError(recipe.constructor.name, support.reason);
}

/** As `ask`. Operands that no backend multiplies are refused as the backend would refuse them. */
function answerOf(recipe: Recipe, backend: Backend): RecipeSupport {
  try {
    return querySupport(recipe, backend);
  } catch (error) {
    if (error instanceof UnsupportedError) return { ok: false, reason: error.reason };
    throw error;
  }
}

function querySupport(recipe: Recipe, backend: Backend): RecipeSupport {
  using _ = new Scope();
  const scale = new Tensor(backend, "f32", [1]);
  const copiesOfRole = (role: Role): RoleCopies => {
    const state = { scale, random: new RandomState(0n) };
    return copiesOf(roleQuantizerFor(recipe, role, state, UNNAMED), role, recipe.backwardOverride);
  };
  const copies = {
    input: copiesOfRole("input"),
    weight: copiesOfRole("weight"),
    gradOutput: copiesOfRole("gradOutput"),
  };
  const operand = (ops: Quantizer): QuantizedTensor => {
    const usage = { rowwise: true, columnwise: true };
    const layout = { spec: ops.spec, usage, scaleLayout: "logical", ops } as const;
    return emptyQuantized(backend, [SIZE, SIZE], "bf16", layout);
  };
  const { datapath } = backend;
  let emulated = false;
  for (const { name, a, b, along } of OPERANDS) {
    const [left, right] = [codesQuantizer(copies[a], along[0]), codesQuantizer(copies[b], along[1])];
    // every backend multiplies in high precision
    if (!left && !right) continue;
    if (!left || !right) {
      const [quantized, wide] = left ? [a, b] : [b, a];
      return {
        ok: false,
        reason: `${name}: the ${quantized} is quantized and the ${wide} is in high precision; give quantizers for both or for neither`,
      };
    }
    const operands = [operand(left), operand(right)] as const;
    const fault = transformFault(
      transformed(`the ${a}`, operands[0], along[0]),
      transformed(`the ${b}`, operands[1], along[1]),
    );
    if (fault) return { ok: false, reason: `${name}: ${fault}` };
    const w = linesOf("gemm", "a", operands[0], { direction: along[0], readsScales: false });
    const x = linesOf("gemm", "b", operands[1], { direction: along[1], readsScales: false });
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
