/**
 * Independent implementations, recorded in vectors/ by scripts/witness, agree with the reference and with the oracle.
 */
import { readdirSync, readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { SCALAR_FORMATS, type ScalarFormat, type ScalarLayout } from "../../../src/formats/scalar.js";
import { random16 } from "../../oracle/core/philox.js";
import { decode, encode, type OverflowName, type RoundingName } from "../../oracle/core/scalar.js";
import * as reference from "../harness/reference-scalar.js";

/** How a witness's NaN is compared: by its exact code, or as equal to any NaN. */
type NanRule = "exact" | "class";

interface Encoding {
  readonly function: string;
  readonly rounding: RoundingName;
  readonly overflow: OverflowName;
  readonly nan: NanRule;
  readonly outputs: readonly string[];
}

interface Decoding {
  readonly function: string;
  readonly codes: readonly string[];
  readonly values: readonly string[];
}

/** An input on which the witness follows another convention than Lockstep. */
interface Difference {
  readonly input: string;
  readonly rounding: RoundingName;
  readonly overflow: OverflowName;
  readonly witness: string;
  readonly lockstep: string;
  readonly why: string;
}

/** The source of a witness's random bits, and the bits: 16 per input. */
interface Recorded {
  readonly seed: string;
  readonly offset: string;
  readonly words: readonly string[];
}

interface Table {
  readonly format?: ScalarFormat;
  readonly layout?: ScalarLayout;
  readonly inputs: readonly string[];
  readonly random?: Recorded;
  readonly encode: readonly Encoding[];
  readonly decode?: Decoding;
  readonly differences?: readonly Difference[];
}

interface VectorFile {
  readonly origin: { readonly project: string; readonly version: string };
  readonly tables: readonly Table[];
}

interface Random {
  readonly seed: bigint;
  readonly offset: bigint;
}

/**
 * The conversions that are compared with the witnesses. In a stochastic encoding, element i uses word i of `random`.
 */
interface Scalar {
  encodeBits(
    bits: Uint32Array,
    layout: ScalarLayout,
    rounding: RoundingName,
    overflow: OverflowName,
    random?: Random,
  ): Uint32Array;
  decodeCodes(codes: Uint32Array, layout: ScalarLayout): Uint32Array;
}

const oracle: Scalar = {
  encodeBits: (bits, layout, rounding, overflow, random) =>
    bits.map((x, i) => {
      const randomWord = random ? random16(random.seed, random.offset, 0, BigInt(i)) : 0;
      return encode(x, layout, rounding, overflow, randomWord);
    }),
  decodeCodes: (codes, layout) =>
    new Uint32Array(Float32Array.from(codes, (code) => decode(code, layout)).buffer),
};

const SUBJECTS: Readonly<Record<string, Scalar>> = { reference, oracle };
const VECTORS = new URL("../../vectors/", import.meta.url);
const F32_NAN = 0x7fffffff;

function wordsOf(lines: readonly string[], digits: number): Uint32Array {
  const text = lines.join("");
  return Uint32Array.from({ length: text.length / digits }, (_, i) =>
    Number.parseInt(text.slice(i * digits, (i + 1) * digits), 16),
  );
}

function layoutOf(table: Table): ScalarLayout {
  const layout = table.format ? SCALAR_FORMATS[table.format] : table.layout;
  if (!layout) throw new TypeError("vectors: a table has neither a known format nor a layout");
  return layout;
}

function digitsOf({ signed, exponentBits, mantissaBits }: ScalarLayout): number {
  return Math.ceil((Number(signed) + exponentBits + mantissaBits) / 4);
}

function nameOf(table: Table): string {
  const { exponentBits, mantissaBits, bias, signed, subnormals, specials } = layoutOf(table);
  const shape = `${signed ? "s" : "u"}e${exponentBits}m${mantissaBits} bias ${bias} ${specials}`;
  return table.format ?? (subnormals ? shape : `${shape} without subnormals`);
}

function randomOf({ seed, offset }: Recorded): Random {
  return { seed: BigInt(`0x${seed}`), offset: BigInt(`0x${offset}`) };
}

/** The codes, with all NaNs replaced by one if the rule is that NaNs are equal. */
function comparable(codes: Uint32Array, layout: ScalarLayout, rule: NanRule): Uint32Array {
  return rule === "exact"
    ? codes
    : codes.map((code) => (Number.isNaN(decode(code, layout)) ? 0xffffffff : code));
}

function canonicalNan(bits: Uint32Array): Uint32Array {
  return bits.map((x) => ((x & 0x7fffffff) > 0x7f800000 ? F32_NAN : x));
}

/** The first elements that differ, as text; empty if none does. */
function disagreements(inputs: Uint32Array, actualBits: Uint32Array, expectedBits: Uint32Array): string[] {
  if (actualBits.length !== expectedBits.length)
    return [`${actualBits.length} answers to ${expectedBits.length} of the witness`];
  const hex = (x: number | undefined) => (x ?? 0).toString(16);
  return Array.from(inputs, (x, i) => ({ x, ours: actualBits[i], theirs: expectedBits[i] }))
    .filter((row) => row.ours !== row.theirs)
    .slice(0, 8)
    .map((row) => `${hex(row.x)}: ${hex(row.ours)}, the witness says ${hex(row.theirs)}`);
}

function encodesAgree(subject: Scalar, table: Table): void {
  const layout = layoutOf(table);
  const inputs = wordsOf(table.inputs, 8);
  const random = table.random && randomOf(table.random);
  for (const { function: name, rounding, overflow, nan, outputs } of table.encode) {
    const codes = Uint32Array.from(subject.encodeBits(inputs, layout, rounding, overflow, random));
    const actual = comparable(codes, layout, nan);
    const expected = comparable(wordsOf(outputs, digitsOf(layout)), layout, nan);
    expect(disagreements(inputs, actual, expected), `${name} ${rounding} ${overflow}`).toEqual([]);
  }
}

function decodesAgree(subject: Scalar, layout: ScalarLayout, decoding: Decoding): void {
  const codes = wordsOf(decoding.codes, digitsOf(layout));
  const actualBits = canonicalNan(Uint32Array.from(subject.decodeCodes(codes, layout)));
  const expectedBits = canonicalNan(wordsOf(decoding.values, 8));
  expect(disagreements(codes, actualBits, expectedBits), decoding.function).toEqual([]);
}

function differencesHold(subject: Scalar, layout: ScalarLayout, differences: readonly Difference[]): void {
  for (const { input, rounding, overflow, witness, lockstep, why } of differences) {
    const [actualBits] = subject.encodeBits(wordsOf([input], 8), layout, rounding, overflow);
    expect(actualBits, why).toBe(Number.parseInt(lockstep, 16));
    expect(witness, why).not.toBe(lockstep);
  }
}

function wordsAreOurs(random: Recorded): void {
  const { seed, offset } = randomOf(random);
  const recordedWords = wordsOf(random.words, 4);
  expect(recordedWords.map((_, i) => random16(seed, offset, 0, BigInt(i)))).toEqual(recordedWords);
}

function check(table: Table): void {
  const { decode, differences, random } = table;
  const layout = layoutOf(table);
  const name = nameOf(table);
  for (const [who, subject] of Object.entries(SUBJECTS)) {
    it(`${who} encodes ${name} as recorded`, () => encodesAgree(subject, table));
    if (decode) it(`${who} decodes ${name} as recorded`, () => decodesAgree(subject, layout, decode));
    if (differences)
      it(`${who} differs on ${name} exactly where the file lists differences`, () =>
        differencesHold(subject, layout, differences));
  }
  if (random) it(`the random words recorded with ${name} are the oracle's`, () => wordsAreOurs(random));
}

for (const file of readdirSync(VECTORS)) {
  if (!/^(cuda|ml-dtypes|gfloat|torch)-(?!digests|h200|batches).*\.json$/.test(file)) continue;
  const { origin, tables }: VectorFile = JSON.parse(readFileSync(new URL(file, VECTORS), "utf8"));
  describe(`${file}: ${origin.project} ${origin.version}`, () => tables.forEach(check));
}
