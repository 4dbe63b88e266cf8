/** From the sum along K to the stored element: factors, addends and the cast, one row for each order of these operations. */
import { fma } from "../explain/exact.js";
import { add, mul, roundedTo } from "../explain/steps.js";
import type { WideDType } from "../tensor/shape.js";

/** The operands that the epilogue applies to the sum of one element. */
export interface Applied {
  readonly alpha: number;
  /** The scales of the row of x and of the row of w. 1 if there are none. */
  readonly scaleX: number;
  readonly scaleW: number;
  /** The factor of the addend; 0 without an addend. */
  readonly beta: number;
  readonly addend: number;
  /** The element of the bias. Absent: no bias. */
  readonly bias?: number | undefined;
  /** The type of the result. */
  readonly dtype: WideDType;
}

/** A row of `EPILOGUES`. */
interface EpilogueRow {
  readonly words: string;
  /** Which property of an element makes this row differ from the others. */
  readonly needs: "nothing" | "factors" | "addend" | "bias";
  /** The first value of the accumulator. */
  readonly start: (applied: Applied) => number;
  /** The value before the cast. */
  readonly value: (sum: number, applied: Applied) => number;
}

const ZERO = (): number => 0;

/** alpha and the scales as one factor. */
const factorOf = ({ alpha, scaleX, scaleW }: Applied): number => mul(mul(alpha, scaleW), scaleX);
const inTurn = (sum: number, { alpha, scaleX, scaleW }: Applied): number =>
  mul(mul(mul(sum, scaleX), scaleW), alpha);
const withBias = (value: number, { bias }: Applied): number =>
  bias === undefined ? value : add(value, bias);

/** The value by the first row. */
function fusedValue(sum: number, applied: Applied): number {
  const { beta, addend } = applied;
  const factor = factorOf(applied);
  return beta === 0 ? mul(sum, factor) : fma(factor, sum, mul(beta, addend));
}

/** Whether the accumulator may begin at an addend: a factor would multiply it too. */
const mayBegin = (applied: Applied): boolean => factorOf(applied) === 1;

/**
 * Every order of the epilogue. For an element without the property that a row needs, the row is bitwise equal to the first row.
 */
export const EPILOGUES = {
  fused: {
    words: "fma(alpha, sum, beta ⊗ C), then ⊕ bias",
    needs: "nothing",
    start: ZERO,
    value: (sum, applied) => withBias(fusedValue(sum, applied), applied),
  },
  separate: {
    words: "(alpha ⊗ sum) ⊕ (beta ⊗ C), then ⊕ bias",
    needs: "addend",
    start: ZERO,
    value: (sum, applied) =>
      withBias(add(mul(sum, factorOf(applied)), mul(applied.beta, applied.addend)), applied),
  },
  fusedAddend: {
    words: "fma(beta, C, alpha ⊗ sum), then ⊕ bias",
    needs: "addend",
    start: ZERO,
    value: (sum, applied) =>
      withBias(fma(applied.beta, applied.addend, mul(sum, factorOf(applied))), applied),
  },
  inTurn: {
    words: "the scales and alpha multiply the sum one after another, then ⊕ beta ⊗ C, then ⊕ bias",
    needs: "factors",
    start: ZERO,
    value: (sum, applied) => {
      const product = inTurn(sum, applied);
      const { beta, addend } = applied;
      return withBias(beta === 0 ? product : add(product, mul(beta, addend)), applied);
    },
  },
  fusedBias: {
    words: "fma(alpha, sum, bias)",
    needs: "bias",
    start: ZERO,
    value: (sum, applied) => {
      const value = fma(factorOf(applied), sum, applied.bias ?? 0);
      return applied.beta === 0 ? value : add(value, mul(applied.beta, applied.addend));
    },
  },
  biasFirst: {
    words: "the accumulator begins at the bias",
    needs: "bias",
    start: (applied) => (mayBegin(applied) ? (applied.bias ?? 0) : 0),
    value: (sum, applied) => {
      const value = fusedValue(sum, applied);
      return mayBegin(applied) ? value : withBias(value, applied);
    },
  },
  addendFirst: {
    words: "the accumulator begins at beta ⊗ C; the bias is added at the end",
    needs: "addend",
    start: (applied) => (mayBegin(applied) ? mul(applied.beta, applied.addend) : 0),
    value: (sum, applied) => withBias(mayBegin(applied) ? sum : fusedValue(sum, applied), applied),
  },
} as const satisfies Record<string, EpilogueRow>;

/** The name of an order of the epilogue. */
export type EpilogueName = keyof typeof EPILOGUES;

/** The orders of the epilogue that may differ for these elements. */
export function epiloguesFor(all: readonly Applied[]): readonly EpilogueName[] {
  const has = {
    nothing: true,
    factors: all.some(({ alpha, scaleX, scaleW }) => alpha !== 1 || scaleX !== 1 || scaleW !== 1),
    addend: all.some(({ beta }) => beta !== 0),
    bias: all.some(({ bias }) => bias !== undefined),
  };
  return (Object.keys(EPILOGUES) as EpilogueName[]).filter((name) => has[EPILOGUES[name].needs]);
}

/** The stored value of an element whose sum is known. */
export function finished(name: EpilogueName, sum: number, applied: Applied): number {
  const row: EpilogueRow = EPILOGUES[name];
  return roundedTo(row.value(sum, applied), applied.dtype);
}

/** The first value of the accumulator. */
export function startOf(name: EpilogueName, applied: Applied): number {
  const row: EpilogueRow = EPILOGUES[name];
  return row.start(applied);
}
