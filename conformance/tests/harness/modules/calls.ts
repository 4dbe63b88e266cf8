/** Inputs and steps of modules of the table. */
import { type AutocastOptions, autocast } from "../../../../src/autocast.js";
import type { Backend } from "../../../../src/backends/backend.js";
import { add } from "../../../../src/functional/elementwise.js";
import type { LinearCall } from "../../../../src/modules/linear/parts.js";
import { recompute } from "../../../../src/modules/recompute.js";
import { tensor, zeros } from "../../../../src/ops/create.js";
import type { Recipe } from "../../../../src/recipes/recipe.js";
import { Variable } from "../../../../src/tape/variable.js";
import { sameShape, type WideDType } from "../../../../src/tensor/shape.js";
import type { Tensor } from "../../../../src/tensor/tensor.js";
import { words } from "../../../arbitraries/random.js";
import { drawnTensor } from "../drawn-tensor.js";
import { sampleCases } from "../draws.js";
import type { BuiltModule, ModuleInput, ModuleRow } from "./row.js";
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
export function createInputs(
  backend: Backend,
  builtModule: Pick<BuiltModule, "inputs">,
  { rows, seed = 1, dtype = "bf16", requiresGrad = true, isZero = false }: InputOptions,
): readonly Variable[] {
  return builtModule.inputs(rows).map(({ shape, ids }: ModuleInput, i) => {
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
export const inputsWithGradients = (inputs: readonly Variable[]): readonly Variable[] =>
  inputs.filter(({ requiresGrad }) => requiresGrad);

/** The options of a region with this recipe, or of a disabled region. */
export const regionOptions = (recipe: Recipe | undefined): AutocastOptions =>
  recipe ? { recipe } : { enabled: false };

/** The sum of a module's results if all have one shape, otherwise the last result. */
export function combineResults(results: readonly Variable[]): Variable {
  const [firstResult, lastResult] = [results[0], results.at(-1)] as [Variable, Variable];
  return firstResult !== lastResult && sameShape(firstResult.shape, lastResult.shape)
    ? add(firstResult, lastResult)
    : lastResult;
}

/** Runs a module forward under `recompute`, and returns the result of `combineResults`. */
export function recomputeModule(
  builtModule: BuiltModule,
  inputs: readonly Variable[],
  call?: LinearCall,
): Variable {
  return recompute((...variables) => combineResults(builtModule.run(variables, call)), ...inputs);
}

/** Runs a module forward and backward, and returns its combined result. `seed` selects the random gradient. */
export function step(
  builtModule: BuiltModule,
  inputs: readonly Variable[],
  recipe: Recipe | undefined,
  { call, seed = 2 }: { readonly call?: LinearCall; readonly seed?: number } = {},
): Variable {
  const y = autocast(regionOptions(recipe), () => combineResults(builtModule.run(inputs, call)));
  if (y.requiresGrad) y.backward(randomGradient(y, seed));
  return y;
}

/** A random gradient of a result. */
export function randomGradient(y: Variable, seed = 2): Tensor<WideDType> {
  return drawnTensor(y.value.backend, seed, y.shape, y.value.dtype as WideDType);
}

/** The rows for which `holds`, by name, for `it.each`. */
export function rowsWhere(
  holds: (row: ModuleRow) => boolean = () => true,
): readonly (readonly [name: string, row: ModuleRow])[] {
  return modulesWhere(holds).map((name) => [name, MODULES[name] as ModuleRow] as const);
}

/**
 * The cases that this run tests. A short run tests a quarter of the cases, but only a small sample for composed modules and for
 * modules for which `isSampled` returns true.
 */
export function testedCases<T>(
  cases: readonly T[],
  moduleRowOf: (testCase: T) => ModuleRow,
  isSampled = ({ operationsOf }: ModuleRow) => operationsOf !== undefined,
): readonly T[] {
  const isDrawn = (testCase: T): boolean =>
    moduleRowOf(testCase).composed !== undefined || isSampled(moduleRowOf(testCase));
  const [sampledCases, otherCases] = [cases.filter(isDrawn), cases.filter((testCase) => !isDrawn(testCase))];
  const selection = new Set([
    ...sampleCases(sampledCases),
    ...sampleCases(otherCases, Math.ceil(otherCases.length / 4)),
  ]);
  return cases.filter((testCase) => selection.has(testCase));
}
