/** Scalar conversions of the reference on plain arrays, through the public interface. */
import { openBackend } from "../../../src/backends/open.js";
import type { OverflowName, RoundingName } from "../../../src/backends/ops.js";
import type { ScalarLayout } from "../../../src/formats/scalar.js";
import { decode, encode } from "../../../src/ops/cast/cast.js";
import type { RandomSource } from "../../../src/random.js";
import { Scope } from "../../../src/tensor/scope.js";
import { download, fromCodes, upload } from "../../values/plain.js";
import { storageBitsOf } from "../../values/values.js";

const backend = await openBackend("wasm", { threads: 1 });

/** The code of each f32 bit pattern. In a stochastic encoding, element i uses word i of `random`. */
export function encodeBits(
  bits: Uint32Array,
  layout: ScalarLayout,
  rounding: RoundingName,
  overflow: OverflowName,
  random: RandomSource = { seed: 0n, offset: 0n },
): Uint32Array {
  using _scope = new Scope();
  const evenLength = bits.length + (bits.length % 2);
  const paddedBits = new Uint32Array(evenLength);
  paddedBits.set(bits);
  const codes = encode(upload(backend, fromCodes("f32", [evenLength], paddedBits)), {
    format: layout,
    rounding,
    overflow,
    ...random,
  });
  return Uint32Array.from(storedCodes(download(codes).codes, layout)).slice(0, bits.length);
}

/** The f32 bit pattern of each code. */
export function decodeCodes(codes: Uint32Array, layout: ScalarLayout): Uint32Array {
  using _scope = new Scope();
  const x = upload(backend, packCodes(layout, codes));
  return Uint32Array.from(download(decode(x, { format: layout })).codes).slice(0, codes.length);
}

function storedCodes(codes: ArrayLike<number>, layout: ScalarLayout): ArrayLike<number> {
  return storageBitsOf(layout) === 4 ? Array.from(codes).flatMap((byte) => [byte & 15, byte >> 4]) : codes;
}

function packCodes(layout: ScalarLayout, codes: Uint32Array) {
  switch (storageBitsOf(layout)) {
    case 4: {
      const packed = Uint8Array.from({ length: Math.ceil(codes.length / 2) }, (_, i) => {
        return (codes[2 * i] as number) | ((codes[2 * i + 1] ?? 0) << 4);
      });
      return fromCodes("u8", [packed.length], packed);
    }
    case 8:
      return fromCodes("u8", [codes.length], codes);
    case 16:
      return fromCodes("u16", [codes.length], codes);
    default:
      return fromCodes("u32", [codes.length], codes);
  }
}
