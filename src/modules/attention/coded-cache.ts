/** The codes of cached keys and values. */
import { decode, encode } from "../../ops/cast/cast.js";
import { scaled } from "../../ops/elementwise/operators.gen.js";
import { domain } from "../../options.js";
import type { WideDType } from "../../tensor/shape.js";
import type { Tensor } from "../../tensor/tensor.js";

/** The formats of codes in which keys and values are cached. */
export const CACHE_FORMATS = ["e4m3"] as const;

/** A format of codes in which keys and values are cached. */
export type CacheFormat = (typeof CACHE_FORMATS)[number];

const isScale = (value: unknown): boolean => {
  const scale = typeof value === "number" ? Math.fround(value) : 0;
  return scale > 0 && Number.isFinite(scale) && Number.isFinite(Math.fround(1 / scale));
};

/** Accepts a scale that rounds to a positive finite f32 number whose reciprocal is finite too. */
export const cacheScale = domain(isScale, "a number above 0, finite in f32 like its reciprocal");

/** Returns the codes of x * f32(1 / scale): one product in f32, rounded to nearest even and saturated. */
export function cacheCodes(x: Tensor<WideDType>, format: CacheFormat, scale: number): Tensor<CacheFormat> {
  return encode(x, { format, scale: 1 / Math.fround(scale), overflow: "saturate" }) as Tensor<CacheFormat>;
}

/** Returns the values of codes: their product with the scale in f32, rounded once to `dtype`. */
export function cacheValues(codes: Tensor<CacheFormat>, scale: number, dtype: WideDType): Tensor<WideDType> {
  return scaled(decode(codes), scale, { outDtype: dtype });
}
