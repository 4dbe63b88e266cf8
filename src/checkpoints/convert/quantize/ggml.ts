/**
 * Quantizes weights to MXFP4 as ggml does. For an amax below 2^-125 the scale byte is 0; the dialect gguf-mxfp4 differs here,
 * because gguf-py's byte wraps around.
 */
import { valueOfCode } from "../../../formats/derive.js";
import type { Kernels } from "../../kernels/kernels.js";
import { notFinite, numbersOf, type Source } from "../../values/source.js";
import { Changes } from "../changes/changes.js";
import { compareRows } from "../changes/compare.js";
import type { OutputTensors } from "../targets/tensors.js";
import type { TensorAppender } from "../tensor-appender.js";

const BLOCK = 32;
const BIAS = 127;
/** The exponent of the largest code of e2m1. */
const MAX_EXPONENT = 2;
/** Midpoints between codes. A magnitude above midpoint c rounds up to code c + 1; at the midpoint it rounds down. */
const MIDPOINTS = Float64Array.from(
  { length: 7 },
  (_, code) => (valueOfCode("e2m1", code) + valueOfCode("e2m1", code + 1)) / 2,
);
/** If the scale byte is at least `byte`, its products with codes larger than `code` overflow f32. */
const OVERFLOW = { byte: 253, code: 5 } as const;

/**
 * The scale byte of a block: floor(log2(amax)) - 2 + 127, where log2 is rounded to f32; 0 for amax 0. For an amax below 2^-125
 * the sum is negative. C converts the sum to a byte modulo 256; this function returns 0.
 */
export function ggmlScale(amax: number): number {
  if (amax === 0) return 0;
  return Math.max(0, Math.floor(Math.fround(Math.log2(amax))) - MAX_EXPONENT + BIAS);
}

/** The nearest code of a value, ties toward zero. A value that rounds to zero gets plus zero. */
function codeOf(value: number, scale: number, maxCode: number): number {
  const magnitude = Math.abs(value) / scale;
  let code = 0;
  while (code < maxCode && magnitude > (MIDPOINTS[code] as number)) code++;
  return code > 0 && value < 0 ? code + 8 : code;
}

/**
 * Quantizes values in blocks of 32. `codes` gets two codes per byte, the even code in the low half; `bytes` and `scales` get one
 * scale per block. Returns false if a value is NaN or infinite.
 */
export function quantizeMxfp4(
  values: Float32Array | Float64Array,
  codes: Uint8Array,
  bytes: Uint8Array,
  scales: Float32Array,
): boolean {
  for (let block = 0, offset = 0; offset < values.length; block++, offset += BLOCK) {
    let amax = 0;
    for (let i = offset; i < offset + BLOCK; i++) {
      const magnitude = Math.abs(values[i] as number);
      if (!Number.isFinite(magnitude)) return false;
      if (magnitude > amax) amax = magnitude;
    }
    const byte = ggmlScale(amax);
    const scale = 2 ** (byte - BIAS);
    const last = byte >= OVERFLOW.byte ? OVERFLOW.code : MIDPOINTS.length;
    for (let i = offset; i < offset + BLOCK; i += 2)
      codes[i / 2] =
        codeOf(values[i] as number, scale, last) | (codeOf(values[i + 1] as number, scale, last) << 4);
    bytes[block] = byte;
    scales[block] = scale;
  }
  return true;
}

/** Quantizes a weight and writes its tensors. Throws `FileError` for NaN and infinity. */
export async function quantizeByGgml(
  kernels: Kernels,
  source: Source,
  outputs: OutputTensors,
  output: TensorAppender,
): Promise<Changes> {
  const changes = new Changes();
  for await (const rows of source.rows(kernels)) {
    const numbers = numbersOf(rows);
    const values = source.dtype === "f32" ? Float32Array.from(numbers) : numbers;
    const codes = new Uint8Array(values.length / 2);
    const bytes = new Uint8Array(values.length / BLOCK);
    const scales = new Float32Array(bytes.length);
    if (!quantizeMxfp4(values, codes, bytes, scales)) throw notFinite(source.name);
    compareRows(kernels, outputs, rows, codes, { values: scales }, changes);
    await output.append(outputs.scale, bytes);
    await output.append(outputs.codes, codes);
  }
  return changes;
}
