/**
 * The table of PyTorch's operators that have a model, one row each. `lockstep replay` computes the operations of a recorded run
 * with it, and `lockstep.torch.reference` the operations of a running program.
 */
import type { Call } from "./call.js";
import { ATTENTION } from "./tables/attention.js";
import { DRAWS } from "./tables/draws.js";
import { ELEMENTWISE } from "./tables/elementwise.js";
import { LOOKUPS } from "./tables/lookups.js";
import { MOVES } from "./tables/moves.js";
import { NORMS } from "./tables/norms.js";
import { OPTIMIZERS } from "./tables/optimizers.js";
import { PRODUCTS } from "./tables/products.js";
import { REDUCTIONS } from "./tables/reductions.js";
import type { OperatorRow, OperatorRows, Witness } from "./tables/row.js";
import { SOFTMAXES } from "./tables/softmaxes.js";

export type { OperatorRow, Witness } from "./tables/row.js";

/** The rows by schema: name and overload, without the overload "default". */
export const OPERATORS: OperatorRows = {
  ...PRODUCTS,
  ...ELEMENTWISE,
  ...OPTIMIZERS,
  ...LOOKUPS,
  ...DRAWS,
  ...MOVES,
  ...REDUCTIONS,
  ...SOFTMAXES,
  ...NORMS,
  ...ATTENTION,
};

/** The row of a schema. */
export interface OperatorMatch {
  readonly row: OperatorRow;
  /** Whether the operator writes its result into its first argument. */
  readonly writesSelf: boolean;
}

/** The row of a schema; undefined if there is none. `aten::add_.Tensor` has the row of `aten::add.Tensor`. */
export function findRow(schema: string): OperatorMatch | undefined {
  const name = schema.replace(/\.default$/, "");
  if (Object.hasOwn(OPERATORS, name))
    return { row: OPERATORS[name] as OperatorRow, writesSelf: /_(\.|$)/.test(name) };
  const base = name.replace(/_(?=\.|$)/, "");
  const row = base !== name && Object.hasOwn(OPERATORS, base) ? OPERATORS[base] : undefined;
  return row?.inPlace ? { row, writesSelf: true } : undefined;
}

/** The witness of a row for one call. Undefined if the inputs of the call are not of a compared kind and size. */
export function callWitness({ witness, isCompared }: OperatorRow, call: Call): Witness | undefined {
  return isCompared === undefined || isCompared(call) ? witness : undefined;
}
