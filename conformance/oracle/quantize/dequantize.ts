/** Dequantization under every quantizer. */
import { SCALAR_FORMATS } from "../../../src/formats/scalar.js";
import { bitsOf, div, fromBits, mul } from "../core/rational.js";
import { decode, encode } from "../core/scalar.js";
import { copyTiling, layoutFamily, type Shape, type Tiling, type Usage } from "../layout/layout.js";
import { inverseRht16 } from "./hadamard.js";
import {
  elementLayout,
  isTensorRule,
  matrix,
  type QuantizedCopy,
  type QuantizeSpec,
  type WideName,
} from "./quantize.js";

/** The f32 factor of the values of codes. */
function decodeScale(copy: QuantizedCopy, spec: QuantizeSpec, scaleCode: number, line: number): number {
  switch (layoutFamily(spec).scale) {
    case "e4m3": {
      const fullScale = mulOrDiv(copy, spec, decode(scaleCode, SCALAR_FORMATS.e4m3));
      if (fullScale !== undefined) return fullScale;
      const divisor = 6 * (spec.fourOverSix ? (spec.e4m3Max ?? 256) : 448);
      const amax = (spec.rowScaled ? copy.amaxes?.[line] : copy.amax) ?? 0;
      return mul(mul(decode(scaleCode, SCALAR_FORMATS.e4m3), fromBits(amax)), div(1, divisor));
    }
    case "e8m0":
      return decode(scaleCode, SCALAR_FORMATS.e8m0);
    case "ue5m3":
      return decode(scaleCode, SCALAR_FORMATS.ue5m3);
    default:
      return fromBits(scaleCode);
  }
}

/** The combined scale where a tensor scale is stored; undefined where the amax is stored (numerics.md §5.11). */
function mulOrDiv(
  { amax = 0 }: QuantizedCopy,
  { scaleRule }: QuantizeSpec,
  scale: number,
): number | undefined {
  if (scaleRule === undefined || !isTensorRule(scaleRule)) return undefined;
  return scaleRule === "twoLevelDivisor" ? div(scale, fromBits(amax)) : mul(scale, fromBits(amax));
}

/**
 * The [M, K] tensor of a copy as bit patterns of `dtype`: fl(code * scale), then rounded to nearest. M includes padding rows. If
 * a columnwise copy was transformed, its f32 values pass through the inverse transform first.
 */
export function dequantize(
  copy: QuantizedCopy,
  usage: Usage,
  spec: QuantizeSpec,
  dtype: WideName = "f32",
): Uint32Array {
  const layout = elementLayout(spec);
  const shape = sourceShape(copy, usage, spec);
  const tiling = copyTiling(spec, usage, shape);
  const valueAt = (r: number, c: number): number => {
    const code = copy.codes[tiling.codesTransposed ? c * shape[0] + r : r * shape[1] + c] ?? 0;
    const scaleCode = copy.scale[scaleIndex(tiling, shape, r, c)] ?? 0;
    const factor = decodeScale(copy, spec, scaleCode, usage === "rowwise" ? r : c);
    return mul(decode(code, layout), factor);
  };
  const inverses = new Map<string, readonly number[]>();
  const inverseAt = (r: number, c: number): number => {
    const top = r - (r % 16);
    const key = `${top} ${c}`;
    const values =
      inverses.get(key) ??
      inverseRht16(
        Array.from({ length: 16 }, (_, i) => valueAt(top + i, c)),
        spec.rhtSigns ?? true,
      );
    inverses.set(key, values);
    return values[r - top] as number;
  };
  const isTransformed = spec.rht === true && usage === "columnwise";
  const { values } = matrix(shape, [1, 1], false, (r, c) => {
    const value = bitsOf((isTransformed ? inverseAt : valueAt)(r, c));
    return dtype === "f32" ? value : encode(value, SCALAR_FORMATS[dtype], "tiesToEven", "nonfinite");
  });
  return Uint32Array.from(values);
}

function sourceShape({ shape }: QuantizedCopy, usage: Usage, spec: QuantizeSpec): Shape {
  return copyTiling(spec, usage, shape).codesTransposed ? [shape[1], shape[0]] : shape;
}

function scaleIndex({ step, scalesTransposed }: Tiling, [m, k]: Shape, r: number, c: number): number {
  const [i, j] = [Math.floor(r / step[0]), Math.floor(c / step[1])];
  return scalesTransposed ? j * Math.ceil(m / step[0]) + i : i * Math.ceil(k / step[1]) + j;
}
