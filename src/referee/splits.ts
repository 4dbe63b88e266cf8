/** Finds the number of splits of K with which a product has its recorded bits. */

import { ArgumentError, UnsupportedError } from "../errors.js";
import { unpackCodes } from "../io/codes.js";
import { compareType } from "../io/dtypes.js";
import { fromBytes } from "../ops/create.js";
import { gemm } from "../ops/gemm/gemm.js";
import type { ScaledTensor } from "../ops/gemm/operand.js";
import { asBytes } from "../tensor/data.js";
import { Scope } from "../tensor/scope.js";
import { DifferenceCount } from "../tensor/statistics/difference-count.js";
import { Tensor } from "../tensor/tensor.js";
import type { ProductOptions } from "./products.js";
import { toValue, type Value } from "./value.js";

/** cuBLASLt was seen to divide K into at most 48 parts. */
const MAX_SPLITS = 64;
/** Each number of splits is first tried on this many rows and columns of the result. */
const PILOT = { rows: 16, columns: 128 };

/** The first rows of a tensor, in which all further dimensions are whole. */
function leadingRows(x: Tensor, rows: number): Tensor {
  const [all = 1, ...inner] = x.shape;
  if (all <= rows) return x;
  const bytes = asBytes(x.dataSync());
  return fromBytes(x.backend, bytes.slice(0, (bytes.length / all) * rows), [rows, ...inner], x.dtype);
}

/** The first rows of an operand, with their scales. */
function leadingOperand(operand: ProductOptions["x"], rows: number): ProductOptions["x"] {
  if (operand instanceof Tensor) return leadingRows(operand, rows);
  const { data, scaleInv, tile = "tensor" } = operand as ScaledTensor;
  const scaleRows = { tensor: 1, "1xK": rows, "1x128": rows, "128x128": Math.ceil(rows / 128) }[tile];
  const scales = leadingRows(scaleInv, scaleRows) as Tensor<"f32">;
  return { data: leadingRows(data, rows), scaleInv: scales, tile };
}

/** The first rows and columns of a matrix of the host. */
function corner({ dtype, shape, bytes }: Value, rows: number, columns: number): Value {
  const [height = 0, width = 0] = shape;
  const size = bytes.length / Math.max(height * width, 1);
  const out = new Uint8Array(rows * columns * size);
  for (let row = 0; row < rows; row++)
    out.set(bytes.subarray(row * width * size, (row * width + columns) * size), row * columns * size);
  return { dtype, shape: [rows, columns], bytes: out };
}

/** The product of the first rows and columns. */
function pilotOf(options: ProductOptions, rows: number, columns: number): ProductOptions {
  const { x, w, bias, c } = options as ProductOptions & { readonly bias?: Tensor; readonly c?: Tensor };
  const part = c && corner(toValue(c), rows, columns);
  return {
    ...options,
    x: leadingOperand(x, rows),
    w: leadingOperand(w, columns),
    ...(bias && { bias: leadingRows(bias, columns) }),
    ...(c && part && { c: fromBytes(c.backend, part.bytes, part.shape, c.dtype) }),
  } as ProductOptions;
}

/** Whether a product has the recorded bits. All NaN are equal. Throws `ArgumentError` for more splits than K has tiles. */
function isProduct(options: ProductOptions, recorded: Value): boolean {
  using _ = new Scope();
  const { dtype, bytes } = toValue(gemm(options).out);
  const counted = new DifferenceCount(compareType(dtype));
  counted.add(unpackCodes(dtype, bytes), unpackCodes(dtype, recorded.bytes));
  return counted.different === 0;
}

/**
 * Returns the least number of splits of K from 2 on with which a product has all recorded bits, or undefined if no number up to
 * 64 has. cuBLASLt chooses it by the shape. The open scope owns the tensors that the search makes.
 */
export function searchSplits(options: ProductOptions, recorded: Value): number | undefined {
  const [rows = 0, columns = 0] = recorded.shape;
  const size = [Math.min(rows, PILOT.rows), Math.min(columns, PILOT.columns)] as const;
  const pilot = pilotOf(options, ...size);
  const expected = corner(recorded, ...size);
  try {
    for (let splitK = 2; splitK <= MAX_SPLITS; splitK++)
      if (isProduct({ ...pilot, splitK }, expected) && isProduct({ ...options, splitK }, recorded))
        return splitK;
  } catch (error) {
    // K has no more tiles, or the datapath has no splits for these scales
    if (!(error instanceof ArgumentError) && !(error instanceof UnsupportedError)) throw error;
  }
  return undefined;
}
