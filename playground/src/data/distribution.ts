/** Distributions in the notation of the page. Equal strings, sizes and seeds give equal numbers. */
import { normal, randomWords } from "lockstep";
import { parseNumber } from "./numbers.js";

type Draw = (count: number, seed: bigint, ...parameters: number[]) => Float32Array;

/** A distribution: its parameters with their defaults, and the function that draws from it. */
interface Distribution {
  readonly parameters: Readonly<Record<string, number>>;
  readonly draw: Draw;
}

function uniform(count: number, seed: bigint, offset = 0n): Float64Array {
  return Float64Array.from(randomWords({ seed, offset }, count), (word) => (word + 0.5) / 2 ** 32);
}

const DISTRIBUTIONS: Readonly<Record<string, Distribution>> = {
  normal: {
    parameters: { mean: 0, deviation: 1 },
    draw: (count, seed, mean = 0, deviation = 1) =>
      normal({ seed, offset: 0n }, count, deviation).map((x) => x + mean),
  },
  uniform: {
    parameters: { low: -1, high: 1 },
    draw: (count, seed, low = -1, high = 1) =>
      Float32Array.from(uniform(count, seed), (u) => low + (high - low) * u),
  },
  student: {
    parameters: { degrees: 4, scale: 1 },
    draw: (count, seed, degrees = 4, scale = 1) => {
      const summands = Math.max(1, Math.min(64, Math.round(degrees)));
      const top = normal({ seed, offset: 0n }, count, 1);
      const squares = new Float64Array(count);
      for (let i = 1; i <= summands; i++)
        for (const [at, z] of normal({ seed, offset: BigInt(i) }, count, 1).entries())
          squares[at] = (squares[at] as number) + z * z;
      return top.map((z, i) => (scale * z) / Math.sqrt((squares[i] as number) / summands));
    },
  },
  lognormal: {
    parameters: { mean: 0, deviation: 1 },
    draw: (count, seed, mean = 0, deviation = 1) =>
      normal({ seed, offset: 0n }, count, deviation).map((x) => Math.exp(x + mean)),
  },
  ramp: {
    parameters: { low: -1, high: 1 },
    draw: (count, _, low = -1, high = 1) =>
      Float32Array.from({ length: count }, (_, i) => low + ((high - low) * i) / Math.max(1, count - 1)),
  },
  first: {
    parameters: { first: 448, rest: 0.01 },
    draw: (count, _, first = 448, rest = 0.01) =>
      Float32Array.from({ length: count }, (_, i) => (i === 0 ? first : rest)),
  },
};

/** The distributions and their parameters, for help texts. */
export const DISTRIBUTION_HELP = Object.entries(DISTRIBUTIONS).map(
  ([name, { parameters }]) => `${name}(${Object.keys(parameters).join(", ")})`,
);

/** `outliers(share, factor)` after a plus sign multiplies a share of the numbers by the factor. */
const OUTLIERS = "outliers";

function parseCall(text: string): { readonly name: string; readonly given: readonly number[] } | undefined {
  const found = /^([a-z]+)\s*(?:\(([^()]*)\))?$/i.exec(text.trim());
  if (!found) return undefined;
  const words = (found[2] ?? "").split(",").filter((word) => word.trim() !== "");
  const given = words.map((word) =>
    word.trim().endsWith("%")
      ? (parseNumber(word.trim().slice(0, -1)) ?? Number.NaN) / 100
      : parseNumber(word),
  );
  // the numbers are f32; numbers beyond its range are refused
  if (given.some((number) => number === undefined || !Number.isFinite(Math.fround(number)))) return undefined;
  return { name: (found[1] as string).toLowerCase(), given: given as number[] };
}

/**
 * Draws numbers from a distribution such as `normal(0, 1)` or `student(4) + outliers(1%, 50)`. Returns an error message if the
 * string is invalid.
 */
export function drawNumbers(text: string, count: number, seed: bigint): Float32Array | string {
  const calls = text.split("+").map(parseCall);
  const [body, spikes] = calls;
  const row = body && Object.hasOwn(DISTRIBUTIONS, body.name) ? DISTRIBUTIONS[body.name] : undefined;
  const isSpiked = calls.length === 2 && spikes?.name === OUTLIERS;
  if (!body || !row || calls.length > 2 || (calls.length === 2 && !isSpiked))
    return `“${text.slice(0, 40)}” is not a distribution. There are ${DISTRIBUTION_HELP.join(", ")}, each also with + ${OUTLIERS}(share, factor).`;
  const values = row.draw(count, seed, ...body.given);
  if (!isSpiked) return values;
  const [share = 0.01, factor = 50] = spikes?.given ?? [];
  const chance = uniform(count, seed, 1n << 32n);
  return values.map((x, i) => ((chance[i] as number) < share ? x * factor : x));
}
