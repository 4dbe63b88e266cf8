/** From the sum along K to the stored element: factors, addends and the cast, one row for each order of these operations. */
import { fma } from "../explain/exact.js";
import { add, mul, roundedTo } from "../explain/steps.js";
import type { WideDType } from "../tensor/shape.js";

/** The operands that the epilogue applies to the sum of one element. */
export interface EpilogueOperands {
  readonly alpha: number;
  /** The scales of the row of x and of the row of w. 1 without scales. */
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
  /** The property of an element that makes this row differ from the others. */
  readonly needs: "nothing" | "factors" | "addend" | "bias";
  /** The first value of the accumulator. */
  readonly start: (operands: EpilogueOperands) => number;
  /** The value before the cast. */
  readonly value: (sum: number, operands: EpilogueOperands) => number;
}

const ZERO = (): number => 0;

/** alpha and the scales as one factor. */
const factorOf = ({ alpha, scaleX, scaleW }: EpilogueOperands): number => mul(mul(alpha, scaleW), scaleX);
const factorsInTurn = (sum: number, { alpha, scaleX, scaleW }: EpilogueOperands): number =>
  mul(mul(mul(sum, scaleX), scaleW), alpha);
const withBias = (value: number, { bias }: EpilogueOperands): number =>
  bias === undefined ? value : add(value, bias);

/** The value by the row `fused`. */
function fusedValue(sum: number, operands: EpilogueOperands): number {
  const { beta, addend } = operands;
  const factor = factorOf(operands);
  return beta === 0 ? mul(sum, factor) : fma(factor, sum, mul(beta, addend));
}

/** Whether the accumulator may begin at an addend. It may not if there is a factor, which would multiply the addend too. */
const mayBegin = (operands: EpilogueOperands): boolean => factorOf(operands) === 1;

/**
 * Every order of the epilogue. For an element without the property that a row needs, the row is bitwise equal to the first row.
 */
export const EPILOGUES = {
  fused: {
    words: "fma(alpha, sum, beta ⊗ C), then ⊕ bias",
    needs: "nothing",
    start: ZERO,
    value: (sum, operands) => withBias(fusedValue(sum, operands), operands),
  },
  separate: {
    words: "(alpha ⊗ sum) ⊕ (beta ⊗ C), then ⊕ bias",
    needs: "addend",
    start: ZERO,
    value: (sum, operands) =>
      withBias(add(mul(sum, factorOf(operands)), mul(operands.beta, operands.addend)), operands),
  },
  fusedAddend: {
    words: "fma(beta, C, alpha ⊗ sum), then ⊕ bias",
    needs: "addend",
    start: ZERO,
    value: (sum, operands) =>
      withBias(fma(operands.beta, operands.addend, mul(sum, factorOf(operands))), operands),
  },
  inTurn: {
    words: "the scales and alpha multiply the sum one after another, then ⊕ beta ⊗ C, then ⊕ bias",
    needs: "factors",
    start: ZERO,
    value: (sum, operands) => {
      const product = factorsInTurn(sum, operands);
      const { beta, addend } = operands;
      return withBias(beta === 0 ? product : add(product, mul(beta, addend)), operands);
    },
  },
  fusedBias: {
    words: "fma(alpha, sum, bias)",
    needs: "bias",
    start: ZERO,
    value: (sum, operands) => {
      const value = fma(factorOf(operands), sum, operands.bias ?? 0);
      return operands.beta === 0 ? value : add(value, mul(operands.beta, operands.addend));
    },
  },
  biasFirst: {
    words: "the accumulator begins at the bias",
    needs: "bias",
    start: (operands) => (mayBegin(operands) ? (operands.bias ?? 0) : 0),
    value: (sum, operands) => {
      const value = fusedValue(sum, operands);
      return mayBegin(operands) ? value : withBias(value, operands);
    },
  },
  addendFirst: {
    words: "the accumulator begins at beta ⊗ C; the bias is added at the end",
    needs: "addend",
    start: (operands) => (mayBegin(operands) ? mul(operands.beta, operands.addend) : 0),
    value: (sum, operands) => withBias(mayBegin(operands) ? sum : fusedValue(sum, operands), operands),
  },
} as const satisfies Record<string, EpilogueRow>;

/** The name of an order of the epilogue. */
export type EpilogueName = keyof typeof EPILOGUES;

/** The orders of the epilogue that may differ for these elements. */
export function epiloguesFor(elements: readonly EpilogueOperands[]): readonly EpilogueName[] {
  const isPresent = {
    nothing: true,
    factors: elements.some(({ alpha, scaleX, scaleW }) => alpha !== 1 || scaleX !== 1 || scaleW !== 1),
    addend: elements.some(({ beta }) => beta !== 0),
    bias: elements.some(({ bias }) => bias !== undefined),
  };
  return (Object.keys(EPILOGUES) as EpilogueName[]).filter((name) => isPresent[EPILOGUES[name].needs]);
}

/** The stored value of an element whose sum is known. */
export function storedValue(name: EpilogueName, sum: number, operands: EpilogueOperands): number {
  const row: EpilogueRow = EPILOGUES[name];
  return roundedTo(row.value(sum, operands), operands.dtype);
}

/** The first value of the accumulator. */
export function startOf(name: EpilogueName, operands: EpilogueOperands): number {
  const row: EpilogueRow = EPILOGUES[name];
  return row.start(operands);
}
