/** LayerNorm and RMSNorm, in f32 operations that are rounded one by one, and sums in the order of the specification. */
const f = Math.fround;

export type Matrix = readonly (readonly number[])[];

/**
 * The sum in 32 lanes: lane l adds elements l, l + 32, … from +0. Then lane l adds lane l + w, for w = 16, 8, 4, 2, 1.
 */
export function laneSum(terms: readonly number[]): number {
  let lanes = Array.from({ length: 32 }, (_, lane) =>
    terms.filter((_, i) => i % 32 === lane).reduce((sum, term) => f(sum + term), 0),
  );
  while (lanes.length > 1) {
    const half = lanes.length / 2;
    const upper = lanes.slice(half);
    lanes = lanes.slice(0, half).map((value, lane) => f(value + upper[lane]!));
  }
  return lanes[0]!;
}

/** The sum in chunks of 32: each chunk in ascending order from +0, then the chunks in ascending order from +0. */
export function chunkedSum(terms: readonly number[]): number {
  let total = 0;
  for (let first = 0; first < terms.length; first += 32) {
    total = f(total + terms.slice(first, first + 32).reduce((sum, term) => f(sum + term), 0));
  }
  return total;
}

export interface Normalization {
  readonly gamma: readonly number[];
  readonly beta?: readonly number[];
  /** True for LayerNorm, false for RMSNorm. */
  readonly centered: boolean;
  readonly eps: number;
  readonly zeroCenteredGamma: boolean;
}

export interface NormResult {
  readonly out: number[][];
  readonly mean: number[];
  readonly rstd: number[];
}

/** Computes in f32; `out` is not yet rounded to its type. */
export function norm(x: Matrix, n: Normalization): NormResult {
  const mean = x.map((row) => (n.centered ? f(laneSum(row) / row.length) : 0));
  const rstd = x.map((row, i) => {
    const squares = row.map((value) => f(f(value - mean[i]!) * f(value - mean[i]!)));
    return f(1 / f(Math.sqrt(f(f(laneSum(squares) / row.length) + f(n.eps)))));
  });
  const out = x.map((row, i) =>
    row.map((value, j) => {
      const normalizedValue = f(weight(n, j) * f(rstd[i]! * f(value - mean[i]!)));
      return n.beta ? f(normalizedValue + n.beta[j]!) : normalizedValue;
    }),
  );
  return { out, mean, rstd };
}

export interface Gradients {
  readonly dx: number[][];
  readonly dgamma: number[];
  readonly dbeta: number[];
}

export function normBackward(
  grad: Matrix,
  x: Matrix,
  n: Normalization,
  forwardResult: NormResult,
): Gradients {
  const y = x.map((row, i) =>
    row.map((value) => f(forwardResult.rstd[i]! * f(value - forwardResult.mean[i]!))),
  );
  const dx = grad.map((row, i) => {
    const d = row.map((value, j) => f(value * weight(n, j)));
    const a = n.centered ? f(laneSum(d) / d.length) : 0;
    const b = f(laneSum(d.map((value, j) => f(value * y[i]![j]!))) / d.length);
    return d.map((value, j) => f(forwardResult.rstd[i]! * f(value + f(f(-b * y[i]![j]!) - a))));
  });
  const columns = n.gamma.map((_, j) => j);
  return {
    dx,
    dgamma: columns.map((j) => chunkedSum(grad.map((row, i) => f(row[j]! * y[i]![j]!)))),
    dbeta: columns.map((j) => chunkedSum(grad.map((row) => row[j]!))),
  };
}

function weight(n: Normalization, column: number): number {
  return n.zeroCenteredGamma ? f(n.gamma[column]! + 1) : n.gamma[column]!;
}
