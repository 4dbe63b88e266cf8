/** Tensors as readable text, as `String(tensor)` and `console.log(tensor)` print them. */
import { factsOf } from "../formats/derive.js";
import { SCALAR_FORMATS, type ScalarFormat } from "../formats/scalar.js";
import { printable } from "../printable.js";
import type { Tensor } from "./tensor.js";

/** The number of elements that are shown. */
const SHOWN = 8;

/** The symbol of the method that `console.log` and `util.inspect` of Node call. */
export const INSPECT = Symbol.for("nodejs.util.inspect.custom");

/** Returns a text such as `Tensor(f32 [2, 3] wasm) [0, 1, 2, 3, 4, 5]`. It reads at most eight elements and never throws. */
export function showTensor(x: Tensor): string {
  return `Tensor(${x.dtype} [${x.shape.join(", ")}] ${backendName(x)}) ${firstValues(x)}`;
}

/** Returns the first elements as a list, or the reason why they cannot be read. */
export function firstValues(x: Tensor): string {
  if (x.disposed) return "disposed";
  if (x.backend.memory.closed) return "its backend is disposed";
  try {
    const count = Math.min(x.size, SHOWN);
    const bytes = Math.ceil((count * bitsOf(x)) / 8);
    const read = bytes === 0 ? new Uint8Array(0) : x.backend.memory.readSync(x.address, bytes);
    const texts = Array.from({ length: count }, (_, i) => numberText(elementAt(x, read, i)));
    return `[${[...texts, ...(x.size > count ? [`... ${x.size - count} more`] : [])].join(", ")}]`;
  } catch (error) {
    return printable(`cannot be read: ${error instanceof Error ? error.message : String(error)}`);
  }
}

/** Returns the name of a tensor's backend. */
export function backendName({ backend }: Tensor): string {
  return printable(String(backend.name));
}

function bitsOf({ dtype }: Tensor): number {
  if (dtype === "u8") return 8;
  if (dtype === "u16") return 16;
  return isFormat(dtype) ? factsOf(dtype).storageBits : 32;
}

function isFormat(dtype: Tensor["dtype"]): dtype is ScalarFormat {
  return Object.hasOwn(SCALAR_FORMATS, dtype);
}

/**
 * Returns element `i`, given the first bytes of a tensor in little-endian order. Of two FP4 codes in a byte, the even one is in
 * the low half.
 */
function elementAt(x: Tensor, bytes: Uint8Array, i: number): number {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const bits = bitsOf(x);
  if (x.dtype === "f32") return view.getFloat32(4 * i, true);
  if (x.dtype === "i32") return view.getInt32(4 * i, true);
  const word =
    bits === 4
      ? (view.getUint8(i >> 1) >> (4 * (i & 1))) & 15
      : bits === 8
        ? view.getUint8(i)
        : bits === 16
          ? view.getUint16(2 * i, true)
          : view.getUint32(4 * i, true);
  return isFormat(x.dtype) ? valueOfCode(x.dtype, word) : word;
}

/** Returns the exact value of a code. */
function valueOfCode(format: ScalarFormat, code: number): number {
  const { exponentBits, mantissaBits: m, bias, signed, subnormals, specials } = SCALAR_FORMATS[format];
  const fraction = code % 2 ** m;
  const field = Math.floor(code / 2 ** m) % 2 ** exponentBits;
  const sign = signed && Math.floor(code / 2 ** (m + exponentBits)) % 2 === 1 ? -1 : 1;
  if (specials === "fnuz" && sign < 0 && field === 0 && fraction === 0) return Number.NaN;
  if (field === 2 ** exponentBits - 1) {
    if (specials === "ieee") return fraction === 0 ? sign * Number.POSITIVE_INFINITY : Number.NaN;
    if (specials === "nanOnly" && fraction === 2 ** m - 1) return Number.NaN;
  }
  if (field === 0 && subnormals) return sign * fraction * 2 ** (1 - bias - m);
  return sign * (2 ** m + fraction) * 2 ** (field - bias - m);
}

/** Returns the shortest text that rounds to the same f32. */
function numberText(value: number): string {
  if (Object.is(value, -0)) return "-0";
  if (Number.isInteger(value) || !Number.isFinite(value)) return String(value);
  for (let digits = 1; digits < 9; digits++) {
    const text = value.toPrecision(digits);
    if (Math.fround(Number(text)) === value) return String(Number(text));
  }
  return String(Number(value.toPrecision(9)));
}
