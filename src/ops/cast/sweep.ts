/** Digests of all codes of a format. Every f32 bit pattern is encoded, in 256 chunks of 2^24 consecutive patterns. */
import { type Backend, requireBackend } from "../../backends/backend.js";
import type { OverflowName, RoundingName } from "../../backends/ops.js";
import { anything, integer, needed, nested, optionsOf } from "../../options.js";
import type { RandomSource } from "../../random.js";
import { checkDraw } from "../../random.js";
import { Scope } from "../../tensor/scope.js";
import { Tensor } from "../../tensor/tensor.js";
import { execute } from "../execute.js";
import { type FormatLike, formatWordOf, NO_RANDOM, overflow, rounding } from "./cast.js";

/** The number of chunks. Each chunk has 2^24 of the 2^32 bit patterns of f32. */
export const SWEEP_CHUNKS = 256;

/** Options of `sweepChunk`. */
export interface SweepOptions {
  /** The format to encode to: a name, an alias, or a custom layout. */
  readonly format: FormatLike;
  /** The rounding mode. */
  readonly rounding: RoundingName;
  /** What happens to values beyond the format's maximum. */
  readonly overflow: OverflowName;
  /** The random bits for rounding `stochastic`. The bit pattern is the element index. */
  readonly random?: RandomSource | undefined;
}

const checkOptions = optionsOf<SweepOptions>({
  format: needed(anything),
  rounding: needed(rounding),
  overflow: needed(overflow),
  random: nested(checkDraw),
});
const chunkNumber = integer(0, SWEEP_CHUNKS - 1);

/**
 * Encodes the bit patterns i of chunk `chunk` (0 to 255) and returns two digests of the codes. Each digest is the sum over i,
 * modulo 2^32, of (code(i) + 1) * (mix(i, k) | 1). Here mix(x, k) = { x ^= x >>> 16; x *= k; x ^= x >>> 15 }; k is 0x7feb352d
 * for the first digest and 0x846ca68b for the second. In a 16-bit format, the code of a NaN input counts as 0xffff.
 *
 * @throws `ArgumentError` for an invalid chunk or option value or an argument that is not a backend, `DisposedError` for a
 * disposed backend.
 */
export async function sweepChunk(
  backend: Backend,
  chunk: number,
  options: SweepOptions,
): Promise<[number, number]> {
  requireBackend("sweepChunk", backend);
  chunkNumber("sweepChunk", "chunk", chunk);
  const ownOptions = checkOptions("sweepChunk", options);
  const { random = NO_RANDOM } = ownOptions;
  const word = formatWordOf(ownOptions.format);
  using scope = new Scope();
  const out = new Tensor(backend, "u32", [2]);
  const { rounding: mode, overflow: policy } = ownOptions;
  execute(backend, "sweep", { word, rounding: mode, overflow: policy, random, chunk, out });
  const [first = 0, second = 0] = await scope.keep(out).data();
  out.dispose();
  return [first, second];
}
