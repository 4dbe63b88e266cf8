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
  if (target === ignore) return { loss: 0, maximum, total, dx: () => logits.map(() => 0) };
  if (target < 0 || target >= logits.length) {
    return { loss: Number.NaN, maximum, total, dx: () => logits.map(() => Number.NaN) };
  }
  const distance = laneSum(shifted);
  return {
    loss: computeLoss({ total, ofTarget: shifted[target]!, distance, classes: logits.length }, s),
    maximum,
    total,
    dx: (grad) =>
      computeGradient(shifted, { total, target, classes: logits.length }, s).map((x) => f(x * grad)),
  };
}

/** The terms of a loss: the sum of exp(x - maximum), the target's x - maximum, and the sum of x - maximum. */
export interface Terms {
  readonly total: number;
  readonly ofTarget: number;
  readonly distance: number;
  readonly classes: number;
}

/** The loss of a row, with an f32 smoothing. */
export function computeLoss({ total, ofTarget, distance, classes }: Terms, smoothing: number): number {
  const nll = f(log(total) - ofTarget);
  if (smoothing === 0) return nll;
  const uniform = f(log(total) - f(distance / f(classes)));
  return f(f(f(1 - smoothing) * nll) + f(smoothing * uniform));
}

/** The gradient for logits given as x - maximum. `target` is the target's index among them, if it is one of them. */
export function computeGradient(
  shifted: readonly number[],
  { total, target, classes }: { readonly total: number; readonly target: number; readonly classes: number },
  smoothing: number,
): number[] {
  const smoothedTarget = f(smoothing / f(classes));
  const targetShare = f(f(1 - smoothing) + smoothedTarget);
  return shifted.map((x, j) => f(f(exp(x) / total) - (j === target ? targetShare : smoothedTarget)));
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
