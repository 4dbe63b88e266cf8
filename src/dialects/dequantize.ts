/** Dequantizes as other libraries do. */
import { factsOf } from "../formats/derive.js";
import { castTo } from "../ops/cast/cast.js";
import { fromBytes, tensor } from "../ops/create.js";
import { dequantize } from "../ops/quantize/dequantize.js";
import { needed, oneOf, optionsOf } from "../options.js";
import { type CopyTensors, type Direction, QuantizedTensor, requireQuantized } from "../tensor/quantized.js";
import { Scope } from "../tensor/scope.js";
import { storageBits, WIDE_DTYPES, type WideDType } from "../tensor/shape.js";
import { hasType, type Tensor } from "../tensor/tensor.js";
import { formOf } from "./quantizer-of.js";
import { DIALECT_NAMES, DIALECTS, type Dialect, type DialectName } from "./table.js";

/** Options of `dequantizeAs`. Only `dialect` is required. */
export interface DequantizeAsOptions {
  /** The dialect: a key of `DIALECTS`. */
  readonly dialect: DialectName;
  /** The type of the result. Default: the type of the dialect's values; for `source`, the type of `t` before quantization. */
  readonly dtype?: WideDType | undefined;
}

const checkOptions = optionsOf<DequantizeAsOptions>({
  dialect: needed(oneOf(DIALECT_NAMES)),
  dtype: oneOf(WIDE_DTYPES),
});

/**
 * Dequantizes `t` in its logical shape as the library of a dialect does, from the rowwise copy if there is one, else from the
 * columnwise copy. The values are rounded to the type that the library returns (`values` of the dialect's row), then to `dtype`.
 * A dialect that defines no values has the values of `dequantize`. NaN follows `dequantize`.
 *
 * @throws `DTypeError` for an argument that is not a quantized tensor, `ArgumentError` for an unknown dialect, a dialect that
 * lacks the quantizer of `t`, and a `dtype` other than f32, bf16 and f16, `DisposedError` for a disposed tensor.
 */
export function dequantizeAs(t: QuantizedTensor, options: DequantizeAsOptions): Tensor<WideDType> {
  requireQuantized("dequantizeAs", "t", t);
  const ownOptions = checkOptions("dequantizeAs", options);
  const { dialect, dtype } = ownOptions;
  formOf(dialect, t.spec.quantizer);
  const { values }: Dialect = DIALECTS[dialect];
  if (!values) return dequantize(t, dtype);
  const type = values.type === "source" ? t.dtype : values.type;
  using scope = new Scope();
  const read = values.typedScale || values.plusZero ? reread(t, type, values) : t;
  const values32 = values.finiteScales ? castTo(withFiniteScales(read), type) : dequantize(read, type);
  return scope.keep(dtype === undefined ? values32 : castTo(values32, dtype));
}

/** The copy to dequantize, with the scale rounded to `type` and -0 codes replaced where the dialect does so. */
function reread(
  t: QuantizedTensor,
  type: WideDType,
  { typedScale, plusZero }: NonNullable<Dialect["values"]>,
): QuantizedTensor {
  return withCopy(t, ({ data, scaleInv, amax }) => ({
    data: plusZero ? withoutMinusZero(data) : data,
    scaleInv: typedScale && hasType(scaleInv, "f32") ? castTo(castTo(scaleInv, type), "f32") : scaleInv,
    ...(amax ? { amax } : {}),
  }));
}

const directionOf = (t: QuantizedTensor): Direction => (t.rowwise ? "rowwise" : "columnwise");

/** A quantized tensor in which the copy to dequantize has the tensors that `change` returns. */
function withCopy(t: QuantizedTensor, change: (copy: CopyTensors) => CopyTensors): QuantizedTensor {
  const { spec, shape, dtype, scaleLayout, quantizer: ops } = t;
  const direction = directionOf(t);
  return new QuantizedTensor({
    spec,
    shape,
    dtype,
    scaleLayout,
    ops,
    [direction]: change(t.copy(direction)),
  });
}

/**
 * Dequantizes to f32 with the e8m0 code 255 as the scale 2^128: computes twice the value under the scale 2^127. Waits for the
 * device.
 */
function withFiniteScales(t: QuantizedTensor): Tensor<WideDType> {
  const doubled = dequantize(t, "f32");
  const { scaleInv } = t.copy(directionOf(t));
  const scales = scaleInv.dataSync();
  if (!(scales instanceof Uint8Array) || !scales.includes(NAN_SCALE)) return doubled;
  const below = scales.map((code) => Math.min(code, NAN_SCALE - 1));
  const halved = withCopy(t, (copy) => ({
    ...copy,
    scaleInv: fromBytes(scaleInv.backend, below, scaleInv.shape, scaleInv.dtype),
  }));
  const halves = dequantize(halved, "f32").dataSync() as Float32Array;
  const values = doubled.dataSync() as Float32Array;
  const read = values.map((value, i) => (Number.isNaN(value) ? 2 * (halves[i] as number) : value));
  return tensor(doubled.backend, read, t.shape);
}

const NAN_SCALE = 255;

/** The codes of a signed format with -0 replaced by +0. Waits for the device. */
function withoutMinusZero(codes: Tensor): Tensor {
  const bits = storageBits(codes.dtype);
  const minus = 2 ** (factsOf(codes.dtype as "e2m1").bits - 1);
  const bytes = Uint8Array.from(codes.dataSync() as Uint8Array, (byte) => {
    if (bits === 8) return byte === minus ? 0 : byte;
    const [low, high] = [byte & 15, byte >> 4];
    return (low === minus ? 0 : low) | ((high === minus ? 0 : high) << 4);
  });
  return fromBytes(codes.backend, bytes, codes.shape, codes.dtype);
}
