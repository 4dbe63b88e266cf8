/** Derives valid calls of operations and quantizers from their declarations, for rows that list none. */
import type ts from "typescript";
import { TENSOR_ROWS, type TensorRow } from "../../../../src/backends/writes.js";
import { QUANTIZER_CLASSES } from "../../../../src/quantizers/classes.gen.js";
import type { DType } from "../../../../src/tensor/shape.js";
import { VALID } from "./candidates.js";
import type { Callable, Declarations } from "./declared.js";
import { type DerivedRow, type DerivedRows, domainOf, type Row, type Rows } from "./row.js";
import { acceptedTypes } from "./types.js";
import type { World } from "./world.js";

const ROWS_OF: ReadonlyMap<string, readonly TensorRow[]> = TENSOR_ROWS;
const CLASSES = new Set(Object.values(QUANTIZER_CLASSES).map(({ name }) => name));

/**
 * Completes `rows` with calls. An operation or a quantizer needs no row if every argument has one of the values below. The option
 * `out` counts as written. Arguments that may be written in place must be listed in the operation's row.
 */
export function completeRows({ checker, callables }: Declarations, rows: DerivedRows): Rows {
  const rowsByName = new Map<string, Row>();
  for (const [name, row] of Object.entries(rows))
    if (row.calls) rowsByName.set(name, { ...row, calls: row.calls });
  for (const callable of callables) {
    const { name } = callable;
    const isKnown = name in rows || ROWS_OF.has(name) || CLASSES.has(name);
    if (isKnown && !rowsByName.has(name))
      rowsByName.set(name, deriveRow(checker, callable, rows[name] ?? {}));
  }
  return Object.fromEntries(rowsByName);
}

function deriveRow(checker: ts.TypeChecker, { name, parameters }: Callable, row: DerivedRow): Row {
  const valueFor = (world: World, type: ts.Type, path: string): unknown => {
    const listedValue = row.values?.[path];
    if (listedValue !== undefined) return listedValue;
    const { classes, dtypes, literals, kinds, fields } = acceptedTypes(checker, type);
    const domain = domainOf(row, path);
    if (classes.has("Tensor"))
      return world.tensor((dtypes && !dtypes.has("bf16") ? alphabeticallyFirst(dtypes) : "bf16") as DType);
    if (classes.has("RandomState")) return world.random;
    if (literals.size > 0) return literals.has("bf16") ? "bf16" : alphabeticallyFirst(literals);
    if (kinds.has("boolean")) return true;
    if (kinds.has("bigint")) return 1n;
    if (kinds.has("number") && domain) return VALID[domain];
    if (fields.size === 0)
      throw new Error(`${name}: no value follows from the type of ${path}; give its row a valid call`);
    return Object.fromEntries(
      [...fields].map(([key, field]) => [key, valueFor(world, field.type, `${path}.${key}`)]),
    );
  };
  const takesOut = parameters.some(({ type }) => acceptedTypes(checker, type).fields.has("out"));
  return {
    writes: takesOut ? ["options.out"] : [],
    inPlace: (ROWS_OF.get(name) ?? []).filter((each) => each.inPlace).map((each) => each.name),
    ...row,
    calls: [(world) => parameters.map((parameter) => valueFor(world, parameter.type, parameter.name))],
  };
}

/** The first in alphabetical order, because the members of a union are unordered. */
function alphabeticallyFirst<T extends string | number>(members: ReadonlySet<T>): T {
  return [...members].sort()[0] as T;
}
