/** Instructions of the special-function unit, and math functions of CUDA. */
import * as fc from "fast-check";
import { SPECIAL_FUNCTIONS, type SpecialFunctionName } from "../../../src/formats/special-functions.js";
import { specialFunction } from "../../../src/ops/elementwise/special-function.js";
import type { WideDType } from "../../../src/tensor/shape.js";
import { laneShape, wideTensor } from "../../arbitraries/wide.js";
import { SPECIAL_FUNCTIONS as ORACLE } from "../../oracle/core/math-functions.js";
import { download, type PlainTensor, upload, wideValues } from "../../values/plain.js";
import { rounded } from "../../values/rounded.js";
import type { Operation } from "../operation.js";

export interface SpecialFunctionCase {
  readonly x: PlainTensor<WideDType>;
  readonly function: SpecialFunctionName;
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

export const specialFunctionOperation: Operation<SpecialFunctionCase> = {
  arbitrary: fc
    .tuple(laneShape(512), fc.constantFrom(...(Object.keys(SPECIAL_FUNCTIONS) as SpecialFunctionName[])))
    .chain(([shape, name]) =>
      wideTensor(shape, { edges: EDGES, dtype: SPECIAL_FUNCTIONS[name].dtype as WideDType }).map((x) => ({
        x,
        function: name,
      })),
    ),
  run: (backend, { x, ...options }) => ({ out: download(specialFunction(upload(backend, x), options)) }),
  oracle: ({ x, function: name }) => ({
    out: rounded(x.dtype, x.shape, Array.from(wideValues(x), ORACLE[name])),
  }),
};
