/** Finds settings of a product with which it has its recorded bits, such as the number of splits of K. */

import { ArgumentError, UnsupportedError } from "../errors.js";
import { unpackCodes } from "../io/codes.js";
import { compareType } from "../io/dtypes.js";
import { fromBytes } from "../ops/create.js";
import { gemm } from "../ops/gemm/gemm.js";
import type { ScaledTensor } from "../ops/gemm/operand.js";
import type { GemmSettings } from "../ops/gemm/options.js";
import type { Lanes } from "../orders/order.js";
import { asBytes } from "../tensor/data.js";
import { Scope } from "../tensor/scope.js";
import { DifferenceCount } from "../tensor/statistics/difference-count.js";
import { Tensor } from "../tensor/tensor.js";
import type { Call } from "./call.js";
import { candidateLanes, fusedResult } from "./fused-products.js";
import type { ProductOptions } from "./products.js";
import { copyCorner, toValue, type Value } from "./value.js";

/** cuBLASLt was seen to divide K into at most 48 parts. */
const MAX_SPLITS = 64;
/** Settings are first tried on this many rows and columns of the result. */
const PILOT = { rows: 16, columns: 128 };

/** The first rows of a tensor, with all elements of the other dimensions. */
function leadingRows(x: Tensor, rows: number): Tensor {
  const [rowCount = 1, ...inner] = x.shape;
  if (rowCount <= rows) return x;
  const bytes = asBytes(x.dataSync());
  return fromBytes(x.backend, bytes.slice(0, (bytes.length / rowCount) * rows), [rows, ...inner], x.dtype);
}

/** The first rows of an operand, with their scales. */
function leadingOperand(operand: ProductOptions["x"], rows: number): ProductOptions["x"] {
  if (operand instanceof Tensor) return leadingRows(operand, rows);
  const { data, scaleInv, tile = "tensor" } = operand as ScaledTensor;
  const scaleRows = { tensor: 1, "1xK": rows, "1x128": rows, "128x128": Math.ceil(rows / 128) }[tile];
  const scales = leadingRows(scaleInv, scaleRows) as Tensor<"f32">;
  return { data: leadingRows(data, rows), scaleInv: scales, tile };
}

/** The product of the first rows and columns. */
function pilotProduct(options: ProductOptions, rows: number, columns: number): ProductOptions {
  const { x, w, bias, c } = options as ProductOptions & { readonly bias?: Tensor; readonly c?: Tensor };
  const part = c && copyCorner(toValue(c), rows, columns);
  return {
    ...options,
    x: leadingOperand(x, rows),
    w: leadingOperand(w, columns),
    ...(bias && { bias: leadingRows(bias, columns) }),
    ...(c && part && { c: fromBytes(c.backend, part.bytes, part.shape, c.dtype) }),
  } as ProductOptions;
}

/** Whether two values of one dtype have the same bits. All NaN are equal. */
function isEqual({ dtype, bytes }: Value, recorded: Value): boolean {
  const differences = new DifferenceCount(compareType(dtype));
  differences.add(unpackCodes(dtype, bytes), unpackCodes(dtype, recorded.bytes));
  return differences.different === 0;
}

/** Whether a product has the recorded bits. False if the datapath has no such product. */
function hasRecordedBits(options: ProductOptions, recorded: Value): boolean {
  using _ = new Scope();
  try {
    return isEqual(toValue(gemm(options).out), recorded);
  } catch (error) {
    // such as more splits than K has tiles, or splits of a product with scales of blocks
    if (error instanceof ArgumentError || error instanceof UnsupportedError) return false;
    throw error;
  }
}

/**
 * Returns the first of `candidates` whose settings give a product all recorded bits; undefined if none do. The open scope owns
 * the tensors that the search makes.
 */
export function searchProduct<Candidate extends { readonly settings: GemmSettings }>(
  options: ProductOptions,
  recorded: Value,
  candidates: readonly Candidate[],
): Candidate | undefined {
  const [rows = 0, columns = 0] = recorded.shape;
  const size = [Math.min(rows, PILOT.rows), Math.min(columns, PILOT.columns)] as const;
  const pilot = pilotProduct(options, ...size);
  const expected = copyCorner(recorded, ...size);
  return candidates.find(
    ({ settings }) =>
      hasRecordedBits({ ...pilot, ...settings }, expected) &&
      hasRecordedBits({ ...options, ...settings }, recorded),
  );
}

/** Products with K in 2 to 64 splits. */
export const SPLIT_PRODUCTS = Array.from({ length: MAX_SPLITS - 1 }, (_, i) => ({
  settings: { splitK: i + 2 },
}));

/** The number of rows and columns of a result on which lanes are first tried. */
const LANE_PILOT = { rows: 4, columns: 16 };

/** The lanes with which a product on CUDA cores has all recorded bits; undefined if there are none. */
export function searchLanes(call: Call, recorded: Value): Lanes | undefined {
  const [rows = 0, columns = 0] = recorded.shape;
  const pilot = {
    rows: Math.min(rows, LANE_PILOT.rows),
    columns: Math.min(columns, LANE_PILOT.columns),
  };
  const expected = copyCorner(recorded, pilot.rows, pilot.columns);
  return candidateLanes(call).find(
    (lanes) =>
      isEqual(fusedResult(call, lanes, pilot), expected) && isEqual(fusedResult(call, lanes), recorded),
  );
}
