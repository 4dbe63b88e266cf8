/** How numbers are rounded to a format, as plain data. The reference rounds; nothing here does. */
import {
  type Backend,
  decode,
  encode,
  factsOf,
  type OverflowName,
  type RoundingName,
  SCALAR_FORMATS,
  type ScalarFormat,
  tensor,
} from "lockstep";
import { within } from "./backend.js";

/** A code of a format and its value. */
export interface Coded {
  readonly code: number;
  readonly value: number;
}

/** Why a number became the code that it became. */
export type Decision = "nan" | "exact" | "tooSmall" | "beyond" | "down" | "up" | "tie" | "directed" | "drawn";

/** One number, rounded to a format. */
export interface Rounded {
  readonly format: ScalarFormat;
  /** What was rounded: the number, or its magnitude if the format has no sign. */
  readonly input: number;
  /** The result. */
  readonly result: Coded;
  /** The largest value of the format that is not above the input, and the smallest that is not below it. */
  readonly below: Coded;
  readonly above: Coded;
  /** Where the input lies from `below`, 0, to `above`, 1. */
  readonly position: number;
  readonly decision: Decision;
}

/** How to round. */
export interface RoundingSettings {
  readonly rounding: RoundingName;
  readonly overflow: OverflowName;
}

/** Codes of a tensor, one element each, whether or not two share a byte. */
export function unpacked(codes: ArrayLike<number>, bits: number, count: number): Uint32Array {
  if (bits > 4) return Uint32Array.from(codes);
  return Uint32Array.from({ length: count }, (_, i) => ((codes[i >> 1] ?? 0) >> (4 * (i & 1))) & 15);
}

/** Encodes numbers, which are f32 values, and decodes the codes. */
function encoded(
  backend: Backend,
  inputs: readonly number[],
  format: ScalarFormat,
  settings: RoundingSettings,
): readonly Coded[] {
  return within(() => {
    // codes of four bits share a byte, so there are two columns
    const pairs = Float32Array.from(inputs.flatMap((x) => [x, x]));
    const codes = encode(tensor(backend, pairs, [inputs.length, 2]), { format, ...settings });
    const values = decode(codes).dataSync();
    const bare = unpacked(codes.dataSync() as ArrayLike<number>, factsOf(format).bits, pairs.length);
    return inputs.map((_, i) => ({ code: bare[2 * i] as number, value: values[2 * i] as number }));
  });
}

const DOWN = { rounding: "towardNegative", overflow: "saturate" } as const;
const UP = { rounding: "towardPositive", overflow: "saturate" } as const;

/** Rounds numbers to a format. The numbers are taken as f32. */
export function roundAll(
  backend: Backend,
  numbers: readonly number[],
  format: ScalarFormat,
  settings: RoundingSettings,
): readonly Rounded[] {
  const { signed } = SCALAR_FORMATS[format];
  const inputs = numbers.map((x) => (signed ? Math.fround(x) : Math.abs(Math.fround(x))));
  const results = encoded(backend, inputs, format, settings);
  const belows = encoded(backend, inputs, format, DOWN);
  const aboves = encoded(backend, inputs, format, UP);
  return inputs.map((input, i) => {
    const [result, below, above] = [results[i], belows[i], aboves[i]] as [Coded, Coded, Coded];
    const gap = above.value - below.value;
    const position = gap > 0 ? (input - below.value) / gap : 0;
    const decision = decide(format, input, result, position, settings.rounding);
    return { format, input, result, below, above, position, decision };
  });
}

function decide(
  format: ScalarFormat,
  input: number,
  { value }: Coded,
  position: number,
  rounding: RoundingName,
): Decision {
  if (Number.isNaN(input)) return "nan";
  if (input === value) return "exact";
  const { max, minPositive } = factsOf(format);
  if (Math.abs(input) > max) return "beyond";
  if (!SCALAR_FORMATS[format].subnormals && input < minPositive) return "tooSmall";
  if (rounding === "stochastic") return "drawn";
  if (rounding !== "tiesToEven" && rounding !== "tiesToAway") return "directed";
  if (position === 0.5) return "tie";
  return position < 0.5 ? "down" : "up";
}
