/** Compares gradients with finite differences of the forward pass. */
import type { Backend } from "../../../src/backends/backend.js";
import { tensor } from "../../../src/ops/create.js";
import { noGrad } from "../../../src/tape/grad-mode.js";
import { Variable } from "../../../src/tape/variable.js";
import { Scope } from "../../../src/tensor/scope.js";
import { elementCount, type Shape } from "../../../src/tensor/shape.js";
import { words } from "../../arbitraries/random.js";

/**
 * Points are multiples of 2^-12 below 2, directions multiples of 2^-3 up to 1, and steps 2^-7. With these, point + step
 * is exact in f32.
 */
const GRID = 2 ** -12;
const STEP = 2 ** -7;
/** A bound on the number of f32 roundings (half an ulp each) that affect one element. */
const ROUNDINGS = 8;
const ROUNDING = 2 ** -24;
const DIRECTIONS = 3;

/** `count` multiples of 2^-12 between -scale and scale, where scale is a power of two up to 2. */
export function gridValues(seed: number, count: number, scale = 1): Float32Array {
  const steps = (2 * scale) / GRID;
  return Float32Array.from(words(seed, count), (word) => ((word % (steps + 1)) - steps / 2) * GRID);
}

/** A leaf variable of grid values. */
export function gridLeaf(backend: Backend, seed: number, shape: Shape): Variable {
  return new Variable(tensor(backend, gridValues(seed, elementCount(shape)), shape), true);
}

/** A function of leaf variables to differentiate; all f32. */
export interface DifferentiableFunction {
  readonly leaves: readonly Variable[];
  readonly run: () => Variable;
  /** Whether the function has kinks, which a finite difference may step over. Default false. */
  readonly hasKinks?: boolean;
}

/** A directional derivative computed in two ways, and a bound on their difference. */
export interface Derivative {
  readonly gradient: number;
  readonly difference: number;
  readonly bound: number;
}

/**
 * The directional derivatives of L, a randomly weighted sum of the result's elements: from the gradients, and as the central
 * difference D(h) in f64.
 *
 * The bound is the sum of three parts, computed element by element. (1) The truncation error: if its term in h² dominates, |D(h)
 * - L'| is a third of |D(2h) - D(h)|; if a second derivative jumps once, the error is at most |D(2h) - D(h)|. This difference is
 * doubled, because several jumps may partly cancel in it (1.6 times was seen in a TransformerLayer of sreglu with one row). (2)
 * The rounding errors of every element divided by h, and of the gradient. (3) For a kink inside the step: half of the second
 * difference over h.
 */
export function derivatives(
  { leaves, run, hasKinks = false }: DifferentiableFunction,
  seed: number,
): Derivative[] {
  using _scope = new Scope();
  const result = run();
  const weights = gridValues(seed, elementCount(result.shape));
  if (result.value.shape.length === 1 && weights.length === 1) weights[0] = 1;
  result.backward(tensor(result.value.backend, weights, result.shape));
  const centreValues = variableNumbers(result);
  const points = leaves.map(({ tensor: x }) => Float32Array.from(x.dataSync() as Float32Array));
  const gradients = leaves.map(({ grad, tensor: x }) =>
    grad ? toF64(grad.dataSync()) : new Float64Array(x.size),
  );
  for (const leaf of leaves) leaf.zeroGrad();
  return Array.from({ length: DIRECTIONS }, (_, i) => {
    const directions = points.map((point, leaf) =>
      Float32Array.from(words(seed + 1000 * (i + 1) + leaf, point.length), (word) => ((word % 17) - 8) / 8),
    );
    const evaluateAt = (step: number): Float64Array => {
      leaves.forEach((leaf, k) => {
        const direction = directions[k] as Float32Array;
        leaf.tensor.write((points[k] as Float32Array).map((x, j) => x + step * (direction[j] as number)));
      });
      return variableNumbers(noGrad(run));
    };
    const [plusOne, minusOne, plusTwo, minusTwo] = [
      evaluateAt(STEP),
      evaluateAt(-STEP),
      evaluateAt(2 * STEP),
      evaluateAt(-2 * STEP),
    ];
    evaluateAt(0);
    const weightedSum = (term: (j: number) => number): number =>
      weights.reduce((total, weight, j) => total + weight * term(j), 0);
    const absoluteSum = (term: (j: number) => number): number =>
      weights.reduce((total, weight, j) => total + Math.abs(weight * term(j)), 0);
    const valueAt = (values: Float64Array, j: number): number => values[j] as number;
    const difference = weightedSum((j) => valueAt(plusOne, j) - valueAt(minusOne, j)) / (2 * STEP);
    const truncation = absoluteSum(
      (j) =>
        (valueAt(plusTwo, j) - valueAt(minusTwo, j)) / (4 * STEP) -
        (valueAt(plusOne, j) - valueAt(minusOne, j)) / (2 * STEP),
    );
    const products = gradients.map((grad, k) =>
      grad.map((g, j) => g * ((directions[k] as Float32Array)[j] as number)),
    );
    const gradient = products.reduce((total, product) => total + product.reduce((a, b) => a + b, 0), 0);
    const gradientSize = products.reduce(
      (total, product) => total + product.reduce((a, b) => a + Math.abs(b), 0),
      0,
    );
    const kinkBound =
      absoluteSum((j) => valueAt(plusOne, j) - 2 * valueAt(centreValues, j) + valueAt(minusOne, j)) / STEP;
    const roundingBound =
      ROUNDINGS * ROUNDING * (absoluteSum((j) => valueAt(centreValues, j)) / STEP + gradientSize);
    return { gradient, difference, bound: 2 * truncation + roundingBound + (hasKinks ? kinkBound : 0) };
  });
}

function variableNumbers({ tensor: x }: Variable): Float64Array {
  return toF64(x.dataSync());
}

function toF64(data: ArrayLike<number>): Float64Array {
  return Float64Array.from(data);
}
