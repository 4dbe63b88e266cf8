/** The angles of rotary position embeddings. */
import { type Backend, requireBackend } from "../backends/backend.js";
import { guardReceivers, isObject } from "../brand.js";
import { ArgumentError } from "../errors.js";
import { tensor } from "../ops/create.js";
import { boolean, type Domain, describe, finite, integer, optionsOf } from "../options.js";
import type { Tensor } from "../tensor/tensor.js";
import { requireSizes } from "./module.js";
import {
  type Frequencies,
  frequenciesOf,
  type RotaryScaling,
  rotaryScaling,
} from "./rotary/inverse-frequencies.js";
import { rotaryTables } from "./rotary/tables.js";

/** Options of `RotaryPositionEmbedding`, with TransformerEngine's names. All fields are optional. */
export interface RotaryPositionEmbeddingOptions {
  /**
   * The fraction of the `dim` elements that is rotated, from 0 to 1. The number of rotated elements is rounded down. Default 1.
   */
  readonly rotaryPercent?: number | undefined;
  /** The factor by which positions are divided, if `pretrainedMaxPositionEmbeddings` is set. Default: none. */
  readonly seqLenInterpolationFactor?: number | undefined;
  /** The number of positions in training, before interpolation. Default: none. */
  readonly pretrainedMaxPositionEmbeddings?: number | undefined;
  /** The base of the geometric series of frequencies, above 1. Default 10000. */
  readonly rotaryBase?: number | undefined;
  /** Whether the two elements of a pair are neighbours. Default false. */
  readonly interleaved?: boolean | undefined;
  /** A rule that scales the frequencies. TransformerEngine has none. Default: none. */
  readonly scaling?: RotaryScaling | undefined;
}

/** The angles of a rotary embedding, which `functional.rotaryEmbedding` takes. */
export interface RotaryAngles {
  /** The cosines, f32 [positions, pairs]. */
  readonly cos: Tensor<"f32">;
  /** The sines, f32 [positions, pairs]. */
  readonly sin: Tensor<"f32">;
  /** Whether the two elements of a pair are neighbours. */
  readonly interleaved: boolean;
}

const share: Domain = (caller, name, value) => {
  const number = finite(caller, name, value) as number;
  if (number >= 0 && number <= 1) return number;
  throw new ArgumentError(`${caller}: ${name} is ${describe(value)}; it must be from 0 to 1`);
};

const baseAbove1: Domain = (caller, name, value) => {
  const number = finite(caller, name, value) as number;
  if (number > 1) return number;
  throw new ArgumentError(`${caller}: ${name} is ${describe(value)}; it must be above 1`);
};

const checkOptions = optionsOf<RotaryPositionEmbeddingOptions>({
  rotaryPercent: share,
  seqLenInterpolationFactor: integer(1),
  pretrainedMaxPositionEmbeddings: integer(1),
  rotaryBase: baseAbove1,
  interleaved: boolean,
  scaling: rotaryScaling,
});

const positionCount = integer(0, 2 ** 31 - 1);

/**
 * Computes the angles of rotary position embeddings. Angles are products of positions and frequencies in f32, and their cosines
 * and sines are the nearest f32 numbers (numerics.md §10.7). They are computed on the host, once for all layers of a model.
 *
 * @throws `ArgumentError` for an unknown option, an invalid option value, or an odd number of rotated elements, `DisposedError`
 * for a disposed backend.
 */
export class RotaryPositionEmbedding {
  static {
    guardReceivers(this, (x) => isObject(x) && #frequencies in x);
  }

  /** Whether the two elements of a pair are neighbours. */
  readonly interleaved: boolean;
  /** The frequencies, in radians per position, one for each pair. A copy. */
  readonly invFreq: Float32Array;
  readonly #frequencies: Frequencies;
  readonly #interpolation: { readonly factor: number; readonly positions: number } | undefined;

  constructor(
    /** The backend of the angles. */
    readonly backend: Backend,
    /** The number of elements of a head, of which `rotaryPercent` are rotated. */
    readonly dim: number,
    options: RotaryPositionEmbeddingOptions = {},
  ) {
    const ownOptions = checkOptions("RotaryPositionEmbedding", options);
    requireBackend("RotaryPositionEmbedding", backend);
    requireSizes("RotaryPositionEmbedding", { dim });
    const { rotaryPercent = 1, rotaryBase = 10000, interleaved = false, scaling } = ownOptions;
    const width = Math.floor(dim * rotaryPercent);
    if (width % 2 !== 0)
      throw new ArgumentError(
        `RotaryPositionEmbedding: ${width} elements of ${dim} are rotated; give a dim and rotaryPercent with an even number`,
      );
    this.interleaved = interleaved;
    this.#frequencies = frequenciesOf(width, rotaryBase, scaling);
    this.invFreq = this.#frequencies.inverse.slice();
    const { seqLenInterpolationFactor: factor, pretrainedMaxPositionEmbeddings: positions } = ownOptions;
    this.#interpolation = factor !== undefined && positions !== undefined ? { factor, positions } : undefined;
  }

  /**
   * Returns the angles of `maxSeqLen` positions from `offset` on, as tensors of the current scope. With interpolation, positions
   * are divided by `seqLenInterpolationFactor`, or, if `maxSeqLen` is above its product with `pretrainedMaxPositionEmbeddings`,
   * by `maxSeqLen / pretrainedMaxPositionEmbeddings`.
   *
   * @throws `ArgumentError` for a number of positions or an offset that is not an integer from 0, `DisposedError` for a disposed
   * backend.
   */
  forward(maxSeqLen: number, offset = 0): RotaryAngles {
    positionCount("RotaryPositionEmbedding", "maxSeqLen", maxSeqLen);
    positionCount("RotaryPositionEmbedding", "offset", offset);
    const table = { positions: maxSeqLen, offset, scale: this.#scale(maxSeqLen) };
    const { cos, sin } = rotaryTables(this.#frequencies, table);
    const shape = [maxSeqLen, this.#frequencies.inverse.length] as const;
    return {
      cos: tensor(this.backend, cos, shape, "f32"),
      sin: tensor(this.backend, sin, shape, "f32"),
      interleaved: this.interleaved,
    };
  }

  /** The factor of positions. */
  #scale(maxSeqLen: number): number {
    const { factor, positions } = this.#interpolation ?? { factor: 1, positions: maxSeqLen };
    return Math.fround(1 / (maxSeqLen > positions * factor ? maxSeqLen / positions : factor));
  }
}
