/** Tensors without a backend, which subjects take and return and the harness compares. */

import { toStringMethod } from "fast-check";
import type { Backend } from "../../src/backends/backend.js";
import { inherits, isObject } from "../../src/brand.js";
import { DTypeError } from "../../src/errors.js";
import { factsOf } from "../../src/formats/derive.js";
import { SCALAR_FORMATS } from "../../src/formats/scalar.js";
import { anyNumber, describe, instance, ownList } from "../../src/options.js";
import { MAX_DRAWS } from "../../src/random.js";
import { arrayOf, asPlain, kindOf } from "../../src/tensor/data.js";
import { dtypeOf, wideDType } from "../../src/tensor/require.js";
import {
  asMatrix,
  DTYPES,
  type DType,
  elementCount,
  isWide,
  ownShape,
  type Shape,
  storageBits,
  type WideDType,
} from "../../src/tensor/shape.js";
import { Tensor, type TensorData } from "../../src/tensor/tensor.js";
import { fromBits, valueOfCode } from "./values.js";

/** Elements as unsigned integers, the form in which they are compared. */
export type Codes = Uint8Array | Uint16Array | Uint32Array;

const SHOWN = 24;
const elementType = dtypeOf(DTYPES);

/** Throws `DTypeError` if the kind of array does not match the dtype. */
export function requireKind(caller: string, name: string, dtype: DType, data: unknown): void {
  const [kind, arrayName] = [kindOf(data), arrayOf(dtype)];
  if (kind === arrayName) return;
  const description = kind ? `a ${kind}` : describe(data);
  throw new DTypeError(`${caller}: ${name} is ${description}; ${dtype} takes a ${arrayName}`);
}

/**
 * A dense row-major array. f32 and i32 have values, all other types codes; FP4 has two codes per byte. Throws
 * `DTypeError` for an unknown type or data of another kind, `ShapeError` for an invalid shape.
 */
export class PlainTensor<D extends DType = DType> {
  /** The dimensions, frozen. */
  readonly shape: Shape;
  /** Values for f32 and i32, codes for other types; FP4 has two codes per byte. */
  readonly data: TensorData<D>;
  /** Brands instances of this constructor. */
  readonly #isPlainTensor = true;

  /** @internal Whether `x` is a plain tensor itself: not a proxy of one, nor an object with its prototype. */
  static [Symbol.hasInstance](x: unknown): boolean {
    return isObject(x) && #isPlainTensor in x && inherits(this, x);
  }

  constructor(
    /** The element type. */
    readonly dtype: D,
    shape: Shape,
    data: TensorData<D>,
  ) {
    elementType("PlainTensor", "dtype", dtype);
    this.shape = ownShape(shape);
    requireKind("PlainTensor", "data", dtype, data);
    this.data = asPlain("PlainTensor", arrayOf(dtype), data);
  }

  /** One code per element: FP4 unpacked, f32 as bit patterns. */
  get codes(): Codes {
    const { buffer, byteOffset, byteLength } = this.data;
    switch (storageBits(this.dtype)) {
      case 32:
        return new Uint32Array(buffer, byteOffset, byteLength / 4);
      case 16:
        return new Uint16Array(buffer, byteOffset, byteLength / 2);
      case 4:
        return unpack(new Uint8Array(buffer, byteOffset, byteLength));
      default:
        return new Uint8Array(buffer, byteOffset, byteLength);
    }
  }

  /** Rows and columns; the leading dimensions are flattened. */
  get matrix(): readonly [rows: number, columns: number] {
    return asMatrix(this.shape);
  }

  /** Whether it has no elements. A subject refuses empty tensors with `"x.isEmpty": [false]`. */
  get isEmpty(): boolean {
    return elementCount(this.shape) === 0;
  }

  /** Whether an element is NaN. A subject refuses NaN with `"x.hasNaN": [false]`. */
  get hasNaN(): boolean {
    return this.codes.some(specialsOf(this.dtype).isNaN);
  }

  /** Whether an element is infinite. A subject refuses infinities with `"x.hasInfinity": [false]`. */
  get hasInfinity(): boolean {
    return this.codes.some(specialsOf(this.dtype).isInfinity);
  }

  /** Type, shape and the first codes in hexadecimal. */
  toString(): string {
    const digits = storageBits(this.dtype) / 4;
    const codes = Array.from(this.codes.subarray(0, SHOWN), (code) =>
      code.toString(16).padStart(digits, "0"),
    );
    const rest = elementCount(this.shape) > SHOWN ? ` and ${elementCount(this.shape) - SHOWN} more` : "";
    return `${this.dtype} [${this.shape}] ${codes.join(" ")}${rest}`;
  }

  /** The string that fast-check prints for the tensor. */
  [toStringMethod](): string {
    return this.toString();
  }
}

/**
 * Creates a tensor from one code per element: bit patterns for f32; FP4 codes are packed.
 *
 * @throws `ArgumentError` if `codes` is not an array of numbers, or for data that `PlainTensor` refuses. @throws `DTypeError` for
 * an unknown type, `ShapeError` for an invalid shape or a wrong number of codes.
 */
export function fromCodes<D extends DType>(dtype: D, shape: Shape, codes: ArrayLike<number>): PlainTensor<D> {
  return new PlainTensor(dtype, shape, storeCodes(dtype, ownCodes(codes)));
}

/** Returns the codes; codes in a plain array are copied, each read once. */
function ownCodes(codes: ArrayLike<number>): ArrayLike<number> {
  const kind = kindOf(codes);
  if (kind !== undefined) {
    asPlain("fromCodes", "Uint8Array", codes as Uint8Array);
    return codes;
  }
  const what = "an array of numbers";
  return ownList(
    "fromCodes",
    "codes",
    codes,
    (code) => anyNumber("fromCodes", "codes", code) as number,
    what,
    MAX_DRAWS,
  );
}

/** The value of a code. */
export function codeValue(dtype: DType, code: number): number {
  if (dtype === "f32") return fromBits(code);
  if (dtype === "i32") return code | 0;
  if (dtype === "u8" || dtype === "u16" || dtype === "u32") return code;
  return valueOfCode(code, SCALAR_FORMATS[dtype]);
}

/** The code of infinity, and the mask of magnitude bits, of each wide type. */
const WIDE_CODES: Readonly<Record<WideDType, readonly [infinity: number, magnitude: number]>> = {
  f32: [0x7f800000, 0x7fffffff],
  bf16: [0x7f80, 0x7fff],
  f16: [0x7c00, 0x7fff],
};

/** Tests for the NaN and infinity codes of a type. */
export function specialsOf(dtype: DType): {
  readonly isNaN: (code: number) => boolean;
  readonly isInfinity: (code: number) => boolean;
} {
  if (!isWide(dtype))
    return {
      isNaN: (code) => Number.isNaN(codeValue(dtype, code)),
      isInfinity: (code) => Math.abs(codeValue(dtype, code)) === Number.POSITIVE_INFINITY,
    };
  const [infinity, magnitude] = WIDE_CODES[dtype];
  return {
    isNaN: (code) => (code & magnitude) > infinity,
    isInfinity: (code) => (code & magnitude) === infinity,
  };
}

export const plainTensor = instance(PlainTensor, "a PlainTensor");

/** The elements of a wide tensor, exactly. Throws `ArgumentError` for other types. */
export function wideValues(x: PlainTensor<WideDType>): Float32Array {
  plainTensor("wideValues", "x", x);
  wideDType("wideValues", "x.dtype", x.dtype);
  if (x.dtype === "f32") return new Float32Array(x.data.buffer, x.data.byteOffset, x.data.byteLength / 4);
  if (x.dtype === "bf16") return new Float32Array(Uint32Array.from(x.codes, (code) => code << 16).buffer);
  return Float32Array.from(x.codes, (code) => valueOfCode(code, SCALAR_FORMATS.f16));
}

/** A copy of `x` on a backend. */
export function upload<D extends DType>(backend: Backend, x: PlainTensor<D>): Tensor<D> {
  return new Tensor(backend, x.dtype, x.shape).write(x.data);
}

/** The tensor as plain data. */
export function download<D extends DType>(x: Tensor<D>): PlainTensor<D> {
  return new PlainTensor(x.dtype, x.shape, x.dataSync());
}

function storeCodes<D extends DType>(dtype: D, codes: ArrayLike<number>): TensorData<D> {
  const view = (): TensorData => {
    if (dtype === "f32") return new Float32Array(Uint32Array.from(codes).buffer);
    if (dtype === "i32") return Int32Array.from(codes);
    const bits = storageBits(dtype);
    if (bits === 32) return Uint32Array.from(codes);
    if (bits === 16) return Uint16Array.from(codes);
    return bits === 4 ? pack(codes) : Uint8Array.from(codes);
  };
  return view() as TensorData<D>;
}

/**
 * Packs two 4-bit codes per byte, the even element in the low nibble. After an odd count the last high nibble is zero.
 */
export function pack(codes: ArrayLike<number>): Uint8Array {
  const bytes = new Uint8Array(Math.ceil(codes.length / 2));
  for (let i = 0; i < codes.length; i++)
    bytes[i >> 1] = (bytes[i >> 1] as number) | ((codes[i] as number) << (4 * (i & 1)));
  return bytes;
}

export function unpack(bytes: Uint8Array): Uint8Array {
  return Uint8Array.from(
    { length: 2 * bytes.length },
    (_, i) => ((bytes[i >> 1] as number) >> (4 * (i & 1))) & 15,
  );
}

/** Whether all NaNs of a type compare as equal. Narrow formats have one defined NaN code instead. */
export function nanIsClass(dtype: DType): boolean {
  return (
    dtype === "f32" || (dtype in SCALAR_FORMATS && factsOf(dtype as keyof typeof SCALAR_FORMATS).bits >= 16)
  );
}
