/** Options and scales of a model's key-value cache. */
import { CACHE_FORMATS, type CacheFormat } from "../modules/attention/coded-cache.js";
import { boolean, integer, oneOf, optionsOf } from "../options.js";

/** Options of `createCache`. All fields are optional. */
export interface CacheOptions {
  /** The largest number of sequences of a batch. Default 1. */
  readonly maxBatchSize?: number | undefined;
  /** The largest number of positions of a sequence. Default: the `maxPositionEmbeddings` of the model. */
  readonly maxSequenceLength?: number | undefined;
  /** Whether sequences take pages as they grow. Default false. */
  readonly isPaged?: boolean | undefined;
  /** The number of positions of a page. Required with `isPaged`. */
  readonly pageSize?: number | undefined;
  /** The total number of pages. Default: enough for all sequences. */
  readonly totalNumPages?: number | undefined;
  /**
   * The format of one-byte codes in the cache, with the `cacheScales` of the model (`InferenceParamsOptions.format`). Default:
   * the cache holds elements of the model's dtype.
   */
  readonly format?: CacheFormat | undefined;
}

/** The scales of cached codes: one for each layer. */
export interface CacheScales {
  /** The scales of keys. */
  readonly k: readonly number[];
  /** The scales of values. */
  readonly v: readonly number[];
}

/** Checks the options of `createCache`. */
export const checkCache = optionsOf<CacheOptions>({
  maxBatchSize: integer(1),
  maxSequenceLength: integer(1),
  isPaged: boolean,
  pageSize: integer(1),
  totalNumPages: integer(1),
  format: oneOf(CACHE_FORMATS),
});
