/** The algorithm of a GPU library for a product, as plain data that can be stored and used again. */

import { anything, type Domain, elementAt, isArray, listLength, nested, optionsOf } from "../options.js";

/** How split-K reduces its partial sums, with the numbers of cublasLtReductionScheme_t. */
export const REDUCTION_SCHEME = { none: 0, inPlace: 1, computeType: 2, outputType: 4 } as const;

/** The name of a reduction scheme of split-K, as in cublasLtReductionScheme_t. */
export type ReductionScheme = keyof typeof REDUCTION_SCHEME;

/** A configured cublasLtMatmulAlgo_t: its attributes and its opaque bytes. */
export interface GemmAlgorithm {
  /** The library that the numbers belong to. */
  readonly library: "cublasLt";
  /** The library's version number. The bytes in `data` are valid only for this version. */
  readonly version: number;
  /** CUBLASLT_ALGO_CONFIG_ID. */
  readonly id: number;
  /** CUBLASLT_ALGO_CONFIG_TILE_ID. */
  readonly tile: number;
  /** CUBLASLT_ALGO_CONFIG_STAGES_ID. */
  readonly stages: number;
  /** CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID. */
  readonly cluster: number;
  /** CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID. */
  readonly innerShape: number;
  /** CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING. */
  readonly swizzle: number;
  /** CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION. */
  readonly customOption: number;
  /** CUBLASLT_ALGO_CONFIG_SPLITK_NUM; 1 if K is not split. */
  readonly splitK: number;
  /** CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME: how the partial sums of split-K are reduced. */
  readonly scheme: ReductionScheme;
  /** Rows, columns and depth of the product that the library computes, including zero padding. */
  readonly extent: readonly [rows: number, columns: number, depth: number];
  /** The 64 bytes of the struct as sixteen 32-bit words of eight hexadecimal digits each. */
  readonly data: string;
}

const COUNTS = [
  "version",
  "id",
  "tile",
  "stages",
  "cluster",
  "innerShape",
  "swizzle",
  "customOption",
] as const;

/** Returns the first invalid field of `value` and what it must be, or undefined if `value` is a valid algorithm. */
export function algorithmFault(value: unknown): readonly [field: string, needed: string] | undefined {
  const fields = (typeof value === "object" && value !== null ? value : {}) as Record<string, unknown>;
  if (fields.library !== "cublasLt") return ["library", '"cublasLt"'];
  const uncounted = COUNTS.find((name) => !isCount(fields[name], 0));
  if (uncounted) return [uncounted, "a whole number from 0"];
  if (!isCount(fields.splitK, 1)) return ["splitK", "a whole number from 1"];
  if (typeof fields.scheme !== "string" || !Object.hasOwn(REDUCTION_SCHEME, fields.scheme))
    return ["scheme", `one of ${Object.keys(REDUCTION_SCHEME).join(", ")}`];
  const { extent, data } = fields;
  if (!Array.isArray(extent) || extent.length !== 3 || !extent.every((size) => isCount(size, 0)))
    return ["extent", "three sizes"];
  if (typeof data !== "string" || !/^[0-9a-f]{128}$/.test(data)) return ["data", "128 hexadecimal digits"];
  return undefined;
}

/** The fields of an algorithm. `algorithmFault` checks their values, because it also checks algorithms of files. */
const readFields = optionsOf<Partial<GemmAlgorithm>>({
  ...{
    library: anything,
    version: anything,
    id: anything,
    tile: anything,
    stages: anything,
    cluster: anything,
  },
  ...{ innerShape: anything, swizzle: anything, customOption: anything, splitK: anything, scheme: anything },
  extent: (caller, name, value) =>
    isArray(value) && listLength(value) === 3
      ? [0, 1, 2].map((i) => elementAt(caller, name, value, i))
      : (value as null),
  data: anything,
});

/** Returns a copy of an object with the fields of an algorithm, each read once. Throws `ArgumentError` for anything else. */
export const readAlgorithm: Domain = nested(readFields);

function isCount(value: unknown, least: number): boolean {
  return Number.isSafeInteger(value) && (value as number) >= least;
}
