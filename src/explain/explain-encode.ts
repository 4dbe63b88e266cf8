/** `explainEncode`, which explains how one number becomes a code. */
import type { OverflowName, RoundingName } from "../backends/ops.js";
import { resolveFormat } from "../formats/derive.js";
import type { ScalarFormat } from "../formats/scalar.js";
import { NO_RANDOM, overflow, rounding } from "../ops/cast/cast.js";
import { anyNumber, anything, integer, needed, optionsOf, u64 } from "../options.js";
import { castBits } from "../random.js";
import { type RoundingExplanation, roundTo } from "./rounding.js";

/**
 * Options of `explainEncode`: the options of `encode` that affect the result, and the index of the element. Only `format` is
 * required.
 */
export interface ExplainEncodeOptions {
  /** The format of the code: a name or an alias. */
  readonly format: string;
  /** The rounding mode. Default `tiesToEven`. */
  readonly rounding?: RoundingName | undefined;
  /** What happens to values beyond the format's maximum. Default `saturate`. */
  readonly overflow?: OverflowName | undefined;
  /** The seed of the random bits for rounding `stochastic`. Default 0. */
  readonly seed?: bigint | undefined;
  /** The offset of the random bits for rounding `stochastic`. Default 0. */
  readonly offset?: bigint | undefined;
  /** Random bits to use instead of a seed: one word (numerics.md, choice 6). */
  readonly randomBits?: number | undefined;
  /** The index of the element in its tensor, which selects its random bits for `stochastic` rounding. Default 0. */
  readonly index?: number | undefined;
}

const checkOptions = optionsOf<ExplainEncodeOptions>({
  format: needed(anything),
  rounding,
  overflow,
  seed: u64,
  offset: u64,
  randomBits: integer(0, 2 ** 32 - 1),
  index: integer(0),
});

/**
 * Explains the code that `encode` gives for a number, which is first rounded to f32: its neighbours in the format, its position
 * between them, and the reason for the decision (numerics.md §1.2). The result is plain data and needs no backend. Unsigned
 * formats encode the magnitude. For NaN, infinities, overflow and signed zeros see numerics.md, choices 2 to 6.
 *
 * @throws `ArgumentError` for an argument that is not a number, an unknown format, and an invalid option.
 */
export function explainEncode(x: number, options: ExplainEncodeOptions): RoundingExplanation {
  anyNumber("explainEncode", "x", x);
  const ownOptions = checkOptions("explainEncode", options);
  const { rounding = "tiesToEven", overflow = "saturate", index = 0, randomBits } = ownOptions;
  const { seed = NO_RANDOM.seed, offset = NO_RANDOM.offset } = ownOptions;
  const format: ScalarFormat = resolveFormat(ownOptions.format);
  const drawn = { bits: castBits({ seed, offset }, index), width: 16 } as const;
  const random = randomBits === undefined ? drawn : ({ bits: randomBits, width: 32 } as const);
  const choice = { format, rounding, overflow, ...(rounding === "stochastic" ? { random } : {}) };
  return roundTo(Math.fround(x), choice);
}
