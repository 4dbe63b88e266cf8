/** Functions that consist of several differentiable functions. */
import { Scope } from "../tensor/scope.js";
import { gradEnabled } from "./grad-mode.js";
import type { Variable } from "./variable.js";

/**
 * Returns the results of `body`, which calls differentiable functions. If it throws, the tensors that it created are disposed of.
 * Otherwise the tensors that a backward pass may read belong to the open scope, if there is one; inside `noGrad`, only the
 * results are kept.
 */
export function composed<const R extends readonly Variable[]>(body: () => R): R {
  using scope = new Scope();
  const results = body();
  if (gradEnabled()) scope.keepAll();
  else for (const { value } of results) scope.keep(value);
  return results;
}
