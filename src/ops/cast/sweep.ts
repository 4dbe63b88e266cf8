/** Digests of whole formats: every f32 bit pattern encoded, a chunk of 2^24 at a time. */
import { type Backend, requireBackend } from "../../backends/backend.js";
import type { OverflowName, RoundingName } from "../../backends/ops.js";
import { anything, integer, needed, nested, optionsOf } from "../../options.js";
import type { RandomSource } from "../../random.js";
import { checkDraw } from "../../random.js";
import { Scope } from "../../tensor/scope.js";
import { Tensor } from "../../tensor/tensor.js";
import { execute } from "../execute.js";
import { type FormatLike, formatWordOf, NO_RANDOM, overflow, rounding } from "./cast.js";

/** The number of chunks of 2^24 bit patterns in all 2^32. */
export const SWEEP_CHUNKS = 256;

/** Options of `sweepChunk`. */
export interface SweepOptions {
  /** The format to encode to: a name, an alias or a layout of your own. */
  readonly format: FormatLike;
  /** The rounding mode. */
  readonly rounding: RoundingName;
  /** How values beyond the maximum are converted. */
  readonly overflow: OverflowName;
  /** The random bits for `stochastic`, whose element index is the bit pattern. */
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
 * The digest pair of chunk `chunk`, 0 to 255: two sums over its bit patterns i, modulo 2^32, of
 * (code(i) + 1) * (mix(i, k) | 1), where mix(x, k) = { x ^= x >>> 16; x *= k; x ^= x >>> 15 } and k is
 * 0x7feb352d, then 0x846ca68b. In 16-bit formats a NaN input counts as code 0xffff.
 *
 * @throws `ArgumentError` for a chunk or an option outside its domain and for anything but a backend, `DisposedError` for a
 * backend that was disposed of.
 */
export async function sweepChunk(
  backend: Backend,
  chunk: number,
  options: SweepOptions,
): Promise<[number, number]> {
  requireBackend("sweepChunk", backend);
  chunkNumber("sweepChunk", "chunk", chunk);
  checkOptions("sweepChunk", options);
  const { random = NO_RANDOM } = options;
  const word = formatWordOf(options.format);
  using scope = new Scope();
  const out = new Tensor(backend, "u32", [2]);
  const { rounding: mode, overflow: policy } = options;
  execute(backend, "sweep", { word, rounding: mode, overflow: policy, random, chunk, out });
  const [first = 0, second = 0] = await scope.keep(out).data();
  out.dispose();
  return [first, second];
}
