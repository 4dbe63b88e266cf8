/** The expected answer of a subject whose dialect stores fewer tensors than this library or leaves bits undefined. */
import type { Answer, OperationName, PlainTensor } from "lockstep/conformance";
import { DIALECTS, type Dialect, type DialectName } from "../../dialects/table.js";
import { isUndecided } from "../../dialects/undecided.js";
import { UnsupportedError } from "../../errors.js";
import { isScalarFormat, valueOfCode } from "../../formats/derive.js";
import { hasUnitTensorScale, SCALE_RULE_NAMES } from "../../formats/scale-rules.js";
import { valueAt } from "../../options.js";
import { storageBits, type WideDType } from "../../tensor/shape.js";
import type { Harness } from "./harness.js";

/** An input, the expected answer, and the tensors that are not compared. */
export interface Expectation {
  readonly input: object;
  readonly expected: Answer;
  /** The tensors that the answer may leave out. */
  readonly optional: readonly string[];
  /** The dialect that the subject implements. */
  readonly dialect?: DialectName;
}

/** Tensors of the answer that other libraries do not store: a tensor scale that is always 1. */
export function unstoredFields(input: object, expected: Answer): readonly string[] {
  const rule = SCALE_RULE_NAMES.find((name) => name === valueAt(input, "spec.scaleRule"));
  if (rule === undefined || !hasUnitTensorScale(rule)) return [];
  return Object.keys(expected).filter((name) => name.endsWith(".amax"));
}

/** Throws `UnsupportedError` for an input whose result is undefined in the dialect's package. */
export function requireDecided(
  { wideValues }: Harness,
  operation: OperationName,
  { input, expected, dialect }: Expectation,
): void {
  const { undecided }: Partial<Dialect> = dialect === undefined ? {} : DIALECTS[dialect];
  if (!undecided) return;
  const { x } = input as { readonly x: PlainTensor<WideDType> };
  const [rows, columns] = x.matrix;
  const refuse = (): never => {
    throw new UnsupportedError(operation, `${dialect} does not define its answer: ${undecided.because}`);
  };
  if (columns <= (undecided.columns ?? 0)) refuse();
  const values = wideValues(x);
  const stored = Object.entries(expected).flatMap(([name, { data }]) =>
    name.endsWith(".amax") ? [Number(data[0])] : [],
  );
  for (let row = 0; row < rows; row++) {
    const line = values.subarray(row * columns, (row + 1) * columns);
    const amax = line.reduce((largest, value) => Math.max(largest, Math.abs(value)), 0);
    if ([1, ...stored].some((scale) => isUndecided(undecided, scale, amax))) refuse();
  }
}

/**
 * Gives each NaN code the sign of the code in `expected`. Other libraries store the sign of 0 / 0, which depends on the
 * processor.
 */
export function withExpectedNaN(
  dialect: DialectName | undefined,
  codes: Uint8Array,
  expected: PlainTensor,
): Uint8Array {
  const { nonFinite }: Partial<Dialect> = dialect === undefined ? {} : DIALECTS[dialect];
  const { dtype } = expected;
  if (!nonFinite || !isScalarFormat(dtype) || storageBits(dtype) !== 8) return codes;
  const isNaNCode = (code: number): boolean => Number.isNaN(valueOfCode(dtype, code));
  const expectedCodes = expected.codes;
  return codes.map((code, i) => {
    const right = expectedCodes[i] ?? code;
    return isNaNCode(code) && isNaNCode(right) ? right : code;
  });
}
