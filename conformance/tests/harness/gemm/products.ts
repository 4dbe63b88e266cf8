/** Products of operands derived from a seed: the pairs of operand kinds that tensor cores multiply. */
import type { Backend } from "../../../../src/backends/backend.js";
import type { QuantizedTensor, QuantizeSpec } from "../../../../src/tensor/quantized.js";
import { asMatrix, type WideDType } from "../../../../src/tensor/shape.js";
import { makeSpec } from "../../../../src/tensor/spec.js";
import type { Tensor } from "../../../../src/tensor/tensor.js";
import { words } from "../../../arbitraries/random.js";
import { SpecQuantizer } from "../../../operations/quantize/quantized.js";
import { fromCodes, type PlainTensor, upload } from "../../../values/plain.js";

/** The kind of an operand: wide values, or the quantizer to apply to bf16 values. */
type Source = WideDType | QuantizeSpec;

/** The kind of operand b (the input), then of operand a (the weight). */
export type Pair = readonly [b: Source, a: Source];

const fp8 = (format: "e4m3" | "e5m2") => makeSpec("fp8-current", { format });
const block = (tile: "1x128" | "128x128") => makeSpec("fp8-block", { tile, pow2Scales: false });

export const PAIRS: Readonly<Record<string, Pair>> = {
  bf16: ["bf16", "bf16"],
  f16: ["f16", "f16"],
  "e4m3 by e4m3": [fp8("e4m3"), fp8("e4m3")],
  "e5m2 by e4m3": [fp8("e5m2"), fp8("e4m3")],
  "e4m3 by e5m2": [fp8("e4m3"), fp8("e5m2")],
  "1x128 by 128x128": [block("1x128"), block("128x128")],
  "1x128 by 1x128": [block("1x128"), block("1x128")],
  mxfp8: [makeSpec("mxfp8", {}), makeSpec("mxfp8", {})],
  mxfp6: [makeSpec("mxfp6", {}), makeSpec("mxfp6", { format: "e3m2" })],
  mxfp4: [makeSpec("mxfp4", {}), makeSpec("mxfp4", {})],
  nvfp4: [makeSpec("nvfp4", {}), makeSpec("nvfp4", { tile: "16x16" })],
  "128x128 by 1x128": [block("128x128"), block("1x128")],
  "bf16 by e4m3": ["bf16", fp8("e4m3")],
  "bf16 by rows of e4m3": ["bf16", makeSpec("fp8-row", {})],
  "bf16 by 128x128": ["bf16", block("128x128")],
  "bf16 by mxfp8": ["bf16", makeSpec("mxfp8", {})],
  "bf16 by mxfp4": ["bf16", makeSpec("mxfp4", {})],
  "bf16 by nvfp4": ["bf16", makeSpec("nvfp4", {})],
  "nvfp4 by bf16": [makeSpec("nvfp4", {}), "bf16"],
};

/** The common multiple of all sizes of a pair. */
export function sizeMultiple(pair: Pair): number {
  return pair.some((source) => typeof source !== "string" && !source.quantizer.startsWith("fp8")) ? 32 : 1;
}

/** Values of either sign around one, over a few binades, derived from a seed. */
export function gridWideValues(
  dtype: WideDType,
  shape: readonly number[],
  seed: number,
): PlainTensor<WideDType> {
  const [rows, columns] = asMatrix(shape);
  const randomBits = words(seed, rows * columns);
  const toCode = {
    f32: (word: number) => ((word & 0x807fffff) | ((124 + ((word >>> 23) & 7)) << 23)) >>> 0,
    bf16: (word: number) => (word & 0x807f) | ((124 + ((word >>> 16) & 7)) << 7),
    f16: (word: number) => (word & 0x83ff) | ((12 + ((word >>> 16) & 7)) << 10),
  }[dtype];
  return fromCodes(dtype, shape, randomBits.map(toCode));
}

/** An operand of this kind and shape, derived from a seed. */
export function drawOperand(
  backend: Backend,
  source: Source,
  shape: readonly number[],
  seed: number,
): Tensor | QuantizedTensor {
  const x = upload(backend, gridWideValues(typeof source === "string" ? source : "bf16", shape, seed));
  if (typeof source === "string") return x;
  return new SpecQuantizer(source, { rowwise: true, columnwise: false, scaleLayout: "logical" }).quantize(x);
}
