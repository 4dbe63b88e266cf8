/** Tensors without a backend: what subjects take and give, and what the harness compares. */
import { toStringMethod } from "fast-check";
import type { Backend } from "../../src/backends/backend.js";
import { factsOf } from "../../src/formats/derive.js";
import { SCALAR_FORMATS } from "../../src/formats/scalar.js";
import {
  asMatrix,
  type DType,
  elementCount,
  type Shape,
  storageBits,
  type WideDType,
} from "../../src/tensor/shape.js";
import { Tensor, type TensorData } from "../../src/tensor/tensor.js";
import { fromBits, valueOfCode } from "./values.js";

/** Unsigned views of elements, by which they are compared. */
export type Codes = Uint8Array | Uint16Array | Uint32Array;

const SHOWN = 24;

/** A dense row-major array: values for f32 and i32, codes for everything else, FP4 two codes a byte. */
export class PlainTensor<D extends DType = DType> {
  constructor(
    readonly dtype: D,
    readonly shape: Shape,
    readonly data: TensorData<D>,
  ) {}

  /** One code an element, FP4 unpacked; f32 as bit patterns. */
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

  /** Rows and columns, the leading dimensions flattened. */
  get matrix(): readonly [rows: number, columns: number] {
    return asMatrix(this.shape);
  }

  toString(): string {
    const digits = storageBits(this.dtype) / 4;
    const codes = Array.from(this.codes.subarray(0, SHOWN), (code) =>
      code.toString(16).padStart(digits, "0"),
    );
    const rest = elementCount(this.shape) > SHOWN ? ` and ${elementCount(this.shape) - SHOWN} more` : "";
    return `${this.dtype} [${this.shape}] ${codes.join(" ")}${rest}`;
  }

  /** How fast-check prints it. */
  [toStringMethod](): string {
    return this.toString();
  }
}

/** A tensor of the codes given, one an element; f32 from bit patterns, FP4 packed. */
export function fromCodes<D extends DType>(dtype: D, shape: Shape, codes: ArrayLike<number>): PlainTensor<D> {
  return new PlainTensor(dtype, shape, storeCodes(dtype, codes));
}

/** The value of a code of that type. */
export function codeValue(dtype: DType, code: number): number {
  if (dtype === "f32") return fromBits(code);
  if (dtype === "i32") return code | 0;
  if (dtype === "u8" || dtype === "u16" || dtype === "u32") return code;
  return valueOfCode(code, SCALAR_FORMATS[dtype]);
}

/** The elements of a wide tensor, exactly. */
export function wideValues(x: PlainTensor<WideDType>): Float32Array {
  if (x.dtype === "f32") return new Float32Array(x.data.buffer, x.data.byteOffset, x.data.byteLength / 4);
  if (x.dtype === "bf16") return new Float32Array(Uint32Array.from(x.codes, (code) => code << 16).buffer);
  return Float32Array.from(x.codes, (code) => valueOfCode(code, SCALAR_FORMATS.f16));
}

/** A copy of `x` on a backend. */
export function upload<D extends DType>(backend: Backend, x: PlainTensor<D>): Tensor<D> {
  return new Tensor(backend, x.dtype, x.shape).write(x.data);
}

/** A copy of `x` off its backend. */
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

/** Two 4-bit codes a byte, the even element low; an odd count leaves the last half byte zero. */
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

/** Whether any NaN of that type is as good as any other: narrow formats have one defined code for it. */
export function nanIsClass(dtype: DType): boolean {
  return (
    dtype === "f32" || (dtype in SCALAR_FORMATS && factsOf(dtype as keyof typeof SCALAR_FORMATS).bits >= 16)
  );
}
