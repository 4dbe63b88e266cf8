/** Losses, in f32 operations that are rounded one by one. */
import { exp, log } from "../core/math.js";
import { laneSum } from "./norm.js";

const f = Math.fround;

export interface CrossEntropy {
  readonly loss: number;
  readonly maximum: number;
  readonly total: number;
  /** The gradient of the row; `grad` is the gradient of its loss. */
  readonly dx: (grad: number) => number[];
}

/** The cross-entropy of one row of logits. */
export function crossEntropy(
  logits: readonly number[],
  target: number,
  { smoothing = 0, ignore = -100 }: { readonly smoothing?: number; readonly ignore?: number } = {},
): CrossEntropy {
  const maximum = f(Math.max(...logits.filter((x) => !Number.isNaN(x))) + 0);
  const shifted = logits.map((x) => f(x - maximum));
  const total = laneSum(shifted.map(exp));
  const s = f(smoothing);
  const rest = f(1 - s);
  if (target === ignore) return { loss: 0, maximum, total, dx: () => logits.map(() => 0) };
  if (target < 0 || target >= logits.length) {
    return { loss: Number.NaN, maximum, total, dx: () => logits.map(() => Number.NaN) };
  }
  const nll = f(log(total) - shifted[target]!);
  const uniform = f(log(total) - f(laneSum(shifted) / logits.length));
  const off = f(s / logits.length);
  return {
    loss: s === 0 ? nll : f(f(rest * nll) + f(s * uniform)),
    maximum,
    total,
    dx: (grad) =>
      shifted.map((x, j) => {
        const q = j === target ? f(rest + off) : off;
        return f(f(f(exp(x) / total) - q) * grad);
      }),
  };
}

export interface SquaredError {
  readonly loss: number;
  /** The gradient of the row; `grad` is the gradient of its loss. */
  readonly dx: (grad: number) => number[];
}

/** The mean squared error of one row. */
export function mse(x: readonly number[], target: readonly number[]): SquaredError {
  const differences = x.map((value, j) => f(value - target[j]!));
  const share = f(2 / x.length);
  return {
    loss: f(laneSum(differences.map((d) => f(d * d))) / x.length),
    dx: (grad) => differences.map((d) => f(f(d * share) * grad)),
  };
}
