/** Mistakes that change a whole answer in a way computed from correct answers, by operation. */
import type { OperationName } from "../../operations/operations.js";
import { DEQUANTIZE } from "./of-dequantize.js";
import { ENCODE } from "./of-encode.js";
import { GEMM } from "./of-gemm.js";
import { QUANTIZE } from "./of-quantize.js";
import type { Suspect } from "./suspect.js";

/** The suspects of each operation that has any. */
export const ANSWER_SUSPECTS: { readonly [K in OperationName]?: readonly Suspect<K>[] } = {
  quantize: QUANTIZE,
  dequantize: DEQUANTIZE,
  encode: ENCODE,
  gemm: GEMM,
};
