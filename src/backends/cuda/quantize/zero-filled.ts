/** Appends rows of zeros to matrices, for kernels that take whole blocks only. */
import { STAGING } from "../../../formats/contract.gen.js";
import { wordOf } from "../../../formats/derive.js";
import { asMatrix, storageBits, type WideDType } from "../../../tensor/shape.js";
import { Tensor } from "../../../tensor/tensor.js";
import type { LoweringContext } from "../lowering.js";

/** The unit of the kernel's lines, in bytes. */
const LINE_UNIT = 16;

/**
 * Returns x with rows of zeros appended, `rows` rows in all, a multiple of 16. The result is x itself, or a tensor that the open
 * scope disposes of.
 */
export function zeroFilled<X extends Tensor<WideDType>>(
  { addon, device }: LoweringContext,
  x: X,
  rows: number,
): X {
  const [sourceRows, columns] = asMatrix(x.shape);
  if (rows === sourceRows) return x;
  const out = new Tensor(x.backend, x.dtype, [rows, columns]) as X;
  if (out.byteLength === 0) return out;
  const bytes = (columns * storageBits(x.dtype)) / 8;
  // rows whose length is not a multiple of the unit are copied as one line
  const form =
    bytes % LINE_UNIT === 0
      ? { lines: sourceRows, depth: columns, outLines: rows, outPitch: bytes }
      : { lines: 1, depth: x.size, outLines: 1, outPitch: rows * bytes };
  addon.gemmOperand(device, {
    batch: 1,
    data: { address: x.address },
    word: wordOf(x.dtype),
    transposed: false,
    scales: undefined,
    staging: STAGING.plain,
    out: { address: out.address },
    ...form,
  });
  return out;
}
