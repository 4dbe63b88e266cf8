/** Instructions of the special-function unit, and math functions of CUDA. */
import * as fc from "fast-check";
import { SPECIAL_FUNCTIONS, type SpecialFunctionName } from "../../../src/formats/special-functions.js";
import { specialFunction } from "../../../src/ops/elementwise/special-function.js";
import type { Shape, WideDType } from "../../../src/tensor/shape.js";
import { oneAmong, type Supported } from "../../arbitraries/supported.js";
import { laneShape, wideTensor } from "../../arbitraries/wide.js";
import { FUNCTIONS_OF_TWO, SPECIAL_FUNCTIONS as ORACLE } from "../../oracle/core/math-functions.js";
import { download, type PlainTensor, upload, wideValues } from "../../values/plain.js";
import { rounded } from "../../values/rounded.js";
import type { Operation } from "../operation.js";

export interface SpecialFunctionCase {
  readonly x: PlainTensor<WideDType>;
  readonly function: SpecialFunctionName;
  /** The second arguments of a function of two. */
  readonly y?: PlainTensor<"f32">;
}

/** Magnitudes at which an instruction changes its rule, and the limits of its types. */
const EDGES = [
  0,
  2 ** -149,
  2 ** -126,
  2 ** -24,
  2 ** -14,
  2 ** -8,
  0.5,
  0.6,
  2 / 3,
  Math.SQRT1_2,
  1,
  Math.PI / 2,
  2,
  4,
  8,
  9.01,
  16,
  88,
  104,
  126,
  128,
  149,
  65504,
  105615,
  2 ** 126,
];

const NAMES = Object.keys(SPECIAL_FUNCTIONS) as SpecialFunctionName[];

const isOfTwo = (name: SpecialFunctionName): name is keyof typeof FUNCTIONS_OF_TWO =>
  name in FUNCTIONS_OF_TWO;

/** The exponents of powers near which functions change their rule, besides the other edges. */
const SECOND_EDGES = [...EDGES, 3, 2 ** 23, 2 ** 24, Number.POSITIVE_INFINITY];

function caseOf(name: SpecialFunctionName, shape: Shape): fc.Arbitrary<SpecialFunctionCase> {
  const x = wideTensor(shape, { edges: EDGES, dtype: SPECIAL_FUNCTIONS[name].dtype as WideDType });
  if (!isOfTwo(name)) return x.map((each) => ({ x: each, function: name }));
  const y = wideTensor(shape, { edges: SECOND_EDGES, dtype: "f32" });
  return fc.tuple(x, y).map(([first, second]) => ({ x: first, function: name, y: second }));
}

function oracleOf({ x, function: name, y }: SpecialFunctionCase): number[] {
  const first = Array.from(wideValues(x));
  if (!isOfTwo(name)) return first.map(ORACLE[name]);
  const second = Array.from(y ? wideValues(y) : []);
  return first.map((each, i) => FUNCTIONS_OF_TWO[name](each, second[i] as number));
}

/** Draws cases of the functions that `supported` allows. */
export function specialFunctionCase(supported: Supported = {}): fc.Arbitrary<SpecialFunctionCase> {
  return fc
    .tuple(laneShape(512), oneAmong(supported, "function", NAMES))
    .chain(([shape, name]) => caseOf(name, shape));
}

export const specialFunctionOperation: Operation<SpecialFunctionCase> = {
  arbitrary: specialFunctionCase(),
  run: (backend, { x, y, ...options }) => ({
    out: download(
      specialFunction(upload(backend, x), { ...options, ...(y ? { y: upload(backend, y) } : undefined) }),
    ),
  }),
  oracle: (each) => ({ out: rounded(each.x.dtype, each.x.shape, oracleOf(each)) }),
};
