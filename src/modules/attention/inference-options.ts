/** Options of the cache of keys and values. */
import { ArgumentError } from "../../errors.js";
import { anyListOf, boolean, integer, needed, oneOf, optionsOf } from "../../options.js";
import { dtypeOf } from "../../tensor/require.js";
import { WIDE_DTYPES, type WideDType } from "../../tensor/shape.js";
import { CACHE_FORMATS, type CacheFormat, cacheScale } from "./coded-cache.js";

/** Options of `InferenceParams`. `numHeadsKv` and `headDimK` are required. */
export interface InferenceParamsOptions {
  /** The number of heads of keys and values, on this rank. */
  readonly numHeadsKv: number;
  /** The width of a head of keys. */
  readonly headDimK: number;
  /** The width of a head of values. Default: `headDimK`. */
  readonly headDimV?: number | undefined;
  /** The dtype of the cache, which must be the dtype of the keys and values. Default bf16. */
  readonly dtype?: WideDType | undefined;
  /**
   * Caches codes of one byte. A code is the key or value times f32(1 / scale) in f32, rounded to nearest even and saturated.
   * Attention reads the code's value times the scale in f32, rounded to `dtype`, also for the new positions of a step. Default:
   * elements of `dtype`.
   */
  readonly format?: CacheFormat | undefined;
  /** The scale of the keys of each layer, in the order of `layerNumber`. Default: 1 for each. Only with `format`. */
  readonly kScales?: readonly number[] | undefined;
  /** The scale of the values of each layer, in the same order. Default: 1 for each. Only with `format`. */
  readonly vScales?: readonly number[] | undefined;
  /** Whether sequences take pages as they grow, instead of memory for `maxSequenceLength` positions. Default false. */
  readonly isPaged?: boolean | undefined;
  /** The number of positions of a page. Required with `isPaged`. */
  readonly pageSize?: number | undefined;
  /** The number of all pages. Default: enough for `maxBatchSize` sequences of `maxSequenceLength` positions. */
  readonly totalNumPages?: number | undefined;
}

const checkFields = optionsOf<InferenceParamsOptions>({
  numHeadsKv: needed(integer(1)),
  headDimK: needed(integer(1)),
  headDimV: integer(1),
  dtype: dtypeOf(WIDE_DTYPES),
  format: oneOf(CACHE_FORMATS),
  kScales: anyListOf(cacheScale),
  vScales: anyListOf(cacheScale),
  isPaged: boolean,
  pageSize: integer(1),
  totalNumPages: integer(1),
});

/** Checks options. Throws `ArgumentError` also for scales without a format. */
export function checkInferenceOptions(options: InferenceParamsOptions): InferenceParamsOptions {
  const ownOptions = checkFields("InferenceParams", options);
  if (ownOptions.format === undefined && (ownOptions.kScales ?? ownOptions.vScales) !== undefined)
    throw new ArgumentError("InferenceParams: kScales and vScales scale codes; give format too, or neither");
  return ownOptions;
}
