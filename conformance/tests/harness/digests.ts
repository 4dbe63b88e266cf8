/** The committed digests of all 2^32 inputs, and the list of encodings. */
import { readFileSync } from "node:fs";
import { isIntegral, SCALAR_FORMAT_NAMES } from "../../../src/formats/derive.js";
import { SCALAR_FORMATS, type ScalarFormat } from "../../../src/formats/scalar.js";
import { instructionOf, type SpecialFunctionName } from "../../../src/formats/special-functions.js";
import { ROUNDINGS } from "../../../src/ops/cast/cast.js";
import type { Encoding } from "./exhaustive.js";

interface SweepFile {
  readonly seed: string;
  readonly offset: number;
  /** For each encoding, 256 pairs of u32 in hexadecimal. */
  readonly runs: readonly (Encoding & { readonly digests: string })[];
}

/**
 * The overflow policies that have digests. Integers, which lack special codes, saturate under all. `propagate` takes its codes
 * from the other two (cast/cast/propagate-policy.test.ts).
 */
function overflowPolicies(format: ScalarFormat) {
  return isIntegral(SCALAR_FORMATS[format].specials) ? (["saturate"] as const) : DIGEST_POLICIES;
}

const DIGEST_POLICIES = ["saturate", "nonfinite"] as const;

/** Every combination of format, rounding and overflow that has digests. */
export const ENCODINGS: readonly Encoding[] = SCALAR_FORMAT_NAMES.flatMap((format) =>
  ROUNDINGS.flatMap((rounding) =>
    overflowPolicies(format).map((overflow) => ({ format, rounding, overflow })),
  ),
);

const file = JSON.parse(
  readFileSync(new URL("../../vectors/sweep-digests.json", import.meta.url), "utf8"),
) as SweepFile;

/** The seed and offset of the stochastic encodings among the digests. */
export const SWEEP_RANDOM = { seed: BigInt(file.seed), offset: BigInt(file.offset) };

/** The committed digest (two u32) of one chunk. Throws `RangeError` if there is none. */
export function committedDigest({ format, rounding, overflow }: Encoding, chunk: number): [number, number] {
  const run = file.runs.find(
    (each) => each.format === format && each.rounding === rounding && each.overflow === overflow,
  );
  return digestAt(run?.digests, chunk, `${format} ${rounding} ${overflow}, chunk ${chunk}`);
}

interface FunctionRun {
  readonly function: SpecialFunctionName;
  /** A pair of u32 in hexadecimal for each chunk. */
  readonly digests: string;
}

interface FunctionFile {
  readonly runs: readonly FunctionRun[];
}

const functions = JSON.parse(
  readFileSync(new URL("../../vectors/special-function-digests.json", import.meta.url), "utf8"),
) as FunctionFile;

/** The committed digest of one chunk of a special function. Throws `RangeError` if there is none. */
export function committedFunctionDigest(name: SpecialFunctionName, chunk: number): [number, number] {
  const instruction = instructionOf(name);
  const run = functions.runs.find((each) => each.function === instruction);
  return digestAt(run?.digests, chunk, `${name}, chunk ${chunk}`);
}

function digestAt(digests: string | undefined, index: number, description: string): [number, number] {
  const pair = digests?.slice(index * 16, index * 16 + 16);
  if (pair?.length !== 16) throw new RangeError(`no digest of ${description}`);
  return [Number.parseInt(pair.slice(0, 8), 16), Number.parseInt(pair.slice(8), 16)];
}
