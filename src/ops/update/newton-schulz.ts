/** Orthogonalization of matrices by a Newton–Schulz iteration (numerics.md §9.4). */
import { datapathName } from "../../backends/backend.js";
import { ArgumentError, ShapeError } from "../../errors.js";
import { type DatapathFamily, familyFor } from "../../formats/datapath.js";
import {
  atLeastZero,
  type Domain,
  finite,
  integer,
  listOf,
  type OptionTable,
  oneOf,
  optionsOf,
} from "../../options.js";
import { requireWide, wideDType } from "../../tensor/require.js";
import { Scope } from "../../tensor/scope.js";
import type { WideDType } from "../../tensor/shape.js";
import type { Tensor } from "../../tensor/tensor.js";
import { tensor } from "../create.js";
import { add, divide } from "../elementwise/operators.gen.js";
import { gemm } from "../gemm/gemm.js";
import { expand } from "../layout/copy-slice.js";
import { transpose } from "../layout/layout.js";
import { gradNorm } from "./grad-norm.js";

/** The factors a, b and c of one step: the new X is a X + (b A + c A²) X, where A is X Xᵀ. */
export type CoefficientRow = readonly [a: number, b: number, c: number];

/** The names of TransformerEngine's sets of coefficients (`_COEFFICIENT_SETS` of its `newton_schulz.py`). */
export type CoefficientSet = "simple" | "quintic" | "polar_express" | "cans" | "aol";

/** Options of `newtonSchulz`. All fields are optional; numbers are rounded to f32. */
export interface NewtonSchulzOptions {
  /**
   * The coefficients: a set by name, or one row for each step. If a set has fewer rows than there are steps, `polar_express` and
   * `cans` repeat their last row, and the other sets start again with the first. Default `quintic`.
   */
  readonly coefficients?: CoefficientSet | readonly CoefficientRow[] | undefined;
  /** The number of steps, 1 to 100. Default: the number of rows if `coefficients` is a list, else 5. */
  readonly steps?: number | undefined;
  /** The constant that is added to the norm before x is divided by it. Default 1e-7. */
  readonly eps?: number | undefined;
  /** The dtype of the products and of the result. Default: the dtype of x. */
  readonly dtype?: WideDType | undefined;
  /** How sums of products are accumulated. Default: the backend's datapath, but `fp32` for f32 on a tensor core. */
  readonly datapath?: DatapathFamily | undefined;
}

interface Coefficients {
  readonly rows: readonly CoefficientRow[];
  /** The row that follows the last one: the first row, or the last row again. */
  readonly after: "first" | "last";
}

const COEFFICIENTS: Readonly<Record<CoefficientSet, Coefficients>> = {
  simple: { rows: [[3.4445, -4.775, 2.0315]], after: "first" },
  quintic: {
    rows: [
      [4.0848, -6.8946, 2.927],
      [3.9505, -6.3029, 2.6377],
      [3.7418, -5.5913, 2.3037],
      [2.8769, -3.1427, 1.2046],
      [2.8366, -3.0525, 1.2012],
    ],
    after: "first",
  },
  // arXiv:2505.16932
  polar_express: {
    rows: [
      [8.2051, -22.9019, 16.4607],
      [4.0664, -2.8612, 0.5184],
      [3.9096, -2.8234, 0.525],
      [3.2856, -2.4153, 0.4853],
      [2.2779, -1.6198, 0.3985],
      [1.8726, -1.2307, 0.3585],
      [1.8564, -1.2132, 0.3568],
      [1.875, -1.25, 0.375],
    ],
    after: "last",
  },
  // arXiv:2506.10935
  cans: {
    rows: [
      [8.4703, -25.1081, 18.6293],
      [4.1828, -3.1087, 0.5806],
      [3.9619, -2.9541, 0.563],
      [3.2866, -2.4647, 0.5074],
      [2.2737, -1.6447, 0.4162],
    ],
    after: "last",
  },
  aol: {
    rows: [
      [4.0098, -7.0585, 2.4635],
      [3.4585, -5.5479, 2.5959],
      [2.7573, -3.2939, 1.4254],
      [2.7215, -3.0494, 1.3169],
    ],
    after: "first",
  },
};

const setName = oneOf(Object.keys(COEFFICIENTS));
const numbers = listOf(finite);
const row: Domain = (user, name, value) => {
  const coefficients = numbers(user, name, value);
  const { length } = coefficients as unknown[];
  if (length === 3) return coefficients;
  throw new ArgumentError(`${user}: ${name} has ${length} numbers; give the three factors a, b and c`);
};
const rows = listOf(row);

/** @shared The checks of the options of `newtonSchulz`. */
export const NEWTON_SCHULZ_OPTIONS: OptionTable<NewtonSchulzOptions> = {
  coefficients: (user, name, value) => (typeof value === "string" ? setName : rows)(user, name, value),
  steps: integer(1, 100),
  eps: atLeastZero,
  dtype: wideDType,
  datapath: datapathName,
};
const checkOptions = optionsOf(NEWTON_SCHULZ_OPTIONS);

/**
 * Returns a matrix near the orthogonal factor U·Vᵀ of the singular value decomposition x = U·S·Vᵀ. x [M, N] is divided by its
 * 2-norm plus `eps`, and each step replaces X by a X + (b A + c A²) X with A = X·Xᵀ. If M > N, the transpose is iterated.
 * numerics.md §9.4 has the order of roundings. The polynomial is as in TransformerEngine's `newton_schulz`, the division as in
 * Jordan's Muon. A NaN in x makes the result NaN. Magnitudes from 2^64 on make the norm infinite and finite elements 0. An empty
 * x gives an empty result.
 *
 * @throws `DTypeError` for a tensor that is not f32, bf16 or f16, `ShapeError` for one that is not a matrix, `ArgumentError` for
 * an invalid option value or a number of steps that differs from the number of rows, `UnsupportedError` for a product for which
 * the backend has no kernel, `DisposedError` for a disposed tensor, `OutOfMemoryError` if memory is not available.
 */
export function newtonSchulz(x: Tensor, options: NewtonSchulzOptions = {}): Tensor<WideDType> {
  const source = requireWide("newtonSchulz", "x", x);
  const { eps = 1e-7, dtype = source.dtype, ...rest } = checkOptions("newtonSchulz", options);
  const schedule = scheduleOf("newtonSchulz", rest);
  const { shape, backend } = source;
  const [height = 0, width = 0] = shape;
  if (shape.length !== 2)
    throw new ShapeError(`newtonSchulz: x has shape [${shape}]; it must be a matrix, [M, N]`);
  const datapath = familyFor(dtype, rest.datapath ?? backend.datapath);
  using scope = new Scope();
  const { norm } = gradNorm([source], { maxNorm: 1 });
  const divisor = expand(add(norm, tensor(backend, [eps])), shape);
  const normalized = divide(source, divisor, { outDtype: dtype });
  let result: Tensor<WideDType> = height > width ? transpose(normalized) : normalized;
  for (const each of schedule) {
    const next = stepOf(result, each, { outDtype: dtype, datapath });
    result.dispose();
    result = next;
  }
  return scope.keep(height > width ? transpose(result) : result);
}

/** Returns a X + (b A + c A²) X with A = X·Xᵀ, by three products, each rounded once to `outDtype`. */
function stepOf(
  x: Tensor<WideDType>,
  [a, b, c]: CoefficientRow,
  options: { readonly outDtype: WideDType; readonly datapath: DatapathFamily },
): Tensor<WideDType> {
  using scope = new Scope();
  const gram = gemm({ x, w: x, ...options }).out;
  const polynomial = gemm({ x: gram, w: gram, alpha: c, beta: b, c: gram, ...options }).out;
  const { out } = gemm({ a: x, b: polynomial, layout: "NN", beta: a, c: x, ...options });
  return scope.keep(out) as Tensor<WideDType>;
}

/** @shared Returns the coefficients of each step. Throws `ArgumentError` if `steps` is not the number of listed rows. */
export function scheduleOf(
  user: string,
  { coefficients = "quintic", steps }: Pick<NewtonSchulzOptions, "coefficients" | "steps">,
): readonly CoefficientRow[] {
  if (typeof coefficients !== "string") {
    if (steps === undefined || steps === coefficients.length) return coefficients;
    throw new ArgumentError(
      `${user}: steps is ${steps} and coefficients has ${coefficients.length} rows; give one row for each step`,
    );
  }
  const { rows, after } = COEFFICIENTS[coefficients];
  const last = rows.length - 1;
  return Array.from({ length: steps ?? 5 }, (_, step) => {
    const index = after === "last" ? Math.min(step, last) : step % rows.length;
    return rows[index] as CoefficientRow;
  });
}
