/** Inputs and steps of modules of the table. */
import { type AutocastOptions, autocast } from "../../../../src/autocast.js";
import type { Backend } from "../../../../src/backends/backend.js";
import type { LinearCall } from "../../../../src/modules/linear/parts.js";
import { recompute } from "../../../../src/modules/recompute.js";
import { tensor, zeros } from "../../../../src/ops/create.js";
import type { Recipe } from "../../../../src/recipes/recipe.js";
import { Variable } from "../../../../src/tape/variable.js";
import type { WideDType } from "../../../../src/tensor/shape.js";
import type { Tensor } from "../../../../src/tensor/tensor.js";
import { words } from "../../../arbitraries/random.js";
import { drawnTensor } from "../drawn-tensor.js";
import type { Built, ModuleInput, ModuleRow } from "./row.js";
import { MODULES, modulesWhere } from "./table.js";

export interface InputOptions {
  readonly rows: number;
  /** Default 1. */
  readonly seed?: number;
  /** The dtype of inputs that are not numbers. Default bf16. */
  readonly dtype?: WideDType;
  /** Default true. Numbers have no gradient. */
  readonly requiresGrad?: boolean;
  /** Whether all elements are 0. Default false. */
  readonly isZero?: boolean;
}

/** Creates inputs of random values. */
export function inputsOf(
  backend: Backend,
  built: Pick<Built, "inputs">,
  { rows, seed = 1, dtype = "bf16", requiresGrad = true, isZero = false }: InputOptions,
): readonly Variable[] {
  return built.inputs(rows).map(({ shape, ids }: ModuleInput, i) => {
    if (ids === undefined) {
      const x = isZero ? zeros(backend, dtype, shape) : drawnTensor(backend, seed + 100 * i, shape, dtype);
      return new Variable(x, requiresGrad);
    }
    const count = shape.reduce((a, b) => a * b, 1);
    const numbers = Int32Array.from(words(seed + 100 * i, count), (word) => (isZero ? 0 : word % ids));
    return new Variable(tensor(backend, numbers, shape, "i32"));
  });
}

/** The inputs whose gradients are computed. */
export const leavesOf = (inputs: readonly Variable[]): readonly Variable[] =>
  inputs.filter(({ requiresGrad }) => requiresGrad);

/** The region of a recipe, or one that is off. */
export const regionOf = (recipe: Recipe | undefined): AutocastOptions =>
  recipe ? { recipe } : { enabled: false };

/** The last result of a module, which depends on all of its layers. */
export function lastOf(results: readonly Variable[]): Variable {
  return results.at(-1) as Variable;
}

/** Runs a module forward. If `recomputes`, its first input that has a gradient is that of a recomputed function. */
export function forward(
  built: Built,
  inputs: readonly Variable[],
  { call, recomputes = false }: { readonly call?: LinearCall; readonly recomputes?: boolean } = {},
): Variable {
  const at = inputs.findIndex(({ value }) => value.dtype !== "i32");
  const x = inputs[at];
  if (!recomputes || !x) return lastOf(built.run(inputs, call));
  return recompute((h) => lastOf(built.run(inputs.with(at, h), call)), x);
}

/** Runs a module forward and backward, and returns its result. `seed` is that of the gradient. */
export function step(
  built: Built,
  inputs: readonly Variable[],
  recipe: Recipe | undefined,
  { seed = 2, ...options }: Parameters<typeof forward>[2] & { readonly seed?: number } = {},
): Variable {
  const y = autocast(regionOf(recipe), () => forward(built, inputs, options));
  if (y.requiresGrad) y.backward(gradientOf(y, seed));
  return y;
}

/** A random gradient of a result. */
export function gradientOf(y: Variable, seed = 2): Tensor<WideDType> {
  return drawnTensor(y.value.backend, seed, y.shape, y.value.dtype as WideDType);
}

/** The rows for which `holds`, by name, for `it.each`. */
export function rowsWhere(
  holds: (row: ModuleRow) => boolean = () => true,
): readonly (readonly [name: string, row: ModuleRow])[] {
  return modulesWhere(holds).map((name) => [name, MODULES[name] as ModuleRow] as const);
}
