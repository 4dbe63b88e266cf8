/**
 * The 27 packed layouts of ONNX's `DequantizePacked` (opset 29), which GGUF files use. One row each: the elements and the bytes
 * of a block, and its decoder.
 */
import { ArgumentError, ShapeError } from "../../errors.js";
import { describe, oneOf } from "../../options.js";
import { kindOf } from "../../tensor/data.js";
import { Block, type Decode } from "./block.js";
import { BOOK_LAYOUTS } from "./books.js";
import { NESTED_LAYOUTS } from "./nested.js";
import { PLAIN_LAYOUTS } from "./plain.js";

/** A packed layout: the number of consecutive elements of a row that form a block, and the bytes that store them. */
export interface PackedLayout {
  /** The number of elements of a block. */
  readonly elements: number;
  /** The number of bytes of a block. */
  readonly bytes: number;
}

const block = (elements: number, bytes: number): PackedLayout => ({ elements, bytes });

/** The packed layouts by ONNX's names. */
export const PACKED_LAYOUTS = {
  "gguf:q4_0": block(32, 18),
  "gguf:q4_1": block(32, 20),
  "gguf:q5_0": block(32, 22),
  "gguf:q5_1": block(32, 24),
  "gguf:q8_0": block(32, 34),
  "gguf:q8_1": block(32, 36),
  "gguf:q2_k": block(256, 84),
  "gguf:q3_k": block(256, 110),
  "gguf:q4_k": block(256, 144),
  "gguf:q5_k": block(256, 176),
  "gguf:q6_k": block(256, 210),
  "gguf:q8_k": block(256, 292),
  "gguf:iq2_xxs": block(256, 66),
  "gguf:iq2_xs": block(256, 74),
  "gguf:iq3_xxs": block(256, 98),
  "gguf:iq1_s": block(256, 50),
  "gguf:iq4_nl": block(32, 18),
  "gguf:iq3_s": block(256, 110),
  "gguf:iq2_s": block(256, 82),
  "gguf:iq4_xs": block(256, 136),
  "gguf:iq1_m": block(256, 56),
  "gguf:tq1_0": block(256, 54),
  "gguf:tq2_0": block(256, 66),
  "gguf:mxfp4": block(32, 17),
  "gguf:nvfp4": block(64, 36),
  "gguf:q1_0": block(128, 18),
  "gguf:q2_0": block(64, 18),
} as const satisfies Record<string, PackedLayout>;

/** The name of a packed layout. */
export type PackedLayoutName = keyof typeof PACKED_LAYOUTS;

/** The names of the packed layouts, in table order. */
export const PACKED_LAYOUT_NAMES = Object.keys(PACKED_LAYOUTS) as readonly PackedLayoutName[];

const DECODERS = { ...PLAIN_LAYOUTS, ...NESTED_LAYOUTS, ...BOOK_LAYOUTS } as const satisfies Record<
  string,
  Decode
>;

function decoderOf(name: PackedLayoutName): Decode {
  return DECODERS[name.slice("gguf:".length) as keyof typeof DECODERS];
}

const checkName = oneOf(PACKED_LAYOUT_NAMES);

/**
 * Decodes packed blocks to f32 in the order of their elements, as ONNX's `DequantizePacked` (opset 29) does for `format` and
 * output type FLOAT. `bytes` is a whole number of blocks, little endian. Each product and sum is rounded to f32. A scale that is
 * NaN or infinite gives NaN or infinity; no bytes give no values.
 *
 * @throws `ArgumentError` for an unknown layout and for bytes that are not a `Uint8Array`, `ShapeError` for a partial block.
 */
export function dequantizePacked(bytes: Uint8Array, layout: PackedLayoutName): Float32Array {
  if (kindOf(bytes) !== "Uint8Array")
    throw new ArgumentError(`dequantizePacked: bytes must be a Uint8Array, not ${describe(bytes)}`);
  checkName("dequantizePacked", "layout", layout);
  const { elements, bytes: size } = PACKED_LAYOUTS[layout];
  if (bytes.length % size !== 0)
    throw new ShapeError(
      `dequantizePacked: ${bytes.length} bytes are not whole blocks of ${layout}, which have ${size}; give all bytes of a tensor`,
    );
  const count = bytes.length / size;
  const values = new Float32Array(count * elements);
  const decode = decoderOf(layout);
  const from = new Block(bytes);
  for (let i = 0; i < count; i++, from.at += size)
    decode(from, (index, value) => {
      values[i * elements + index] = value;
    });
  return values;
}
