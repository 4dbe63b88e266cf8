/** Explanations of roundings: their code equals `encode`'s, and their statements about neighbours and the decision are true. */
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { type ExplainEncodeOptions, explainEncode } from "../../../src/explain/explain-encode.js";
import { factsOf, isIntegral, valueOfCode } from "../../../src/formats/derive.js";
import { SCALAR_FORMATS, type ScalarFormat } from "../../../src/formats/scalar.js";
import { encode, OVERFLOWS, ROUNDINGS } from "../../../src/ops/cast/cast.js";
import { tensor } from "../../../src/ops/create.js";
import { Scope } from "../../../src/tensor/scope.js";
import { download } from "../../values/plain.js";
import { draws, sampleCases } from "../harness/draws.js";
import { useBackend } from "../harness/suite.js";

const backend = useBackend({ threads: 1 });
const FORMATS = Object.keys(SCALAR_FORMATS) as ScalarFormat[];
const COUNT = 8;

const floatOf = (bits: number): number => new Float32Array(Uint32Array.of(bits).buffer)[0] as number;

/** Any f32, often near values of a narrow format, near its limits, or on a tie. */
const f32Value = fc.oneof(
  fc.integer({ min: 0, max: 2 ** 32 - 1 }).map(floatOf),
  fc
    .record({
      sign: fc.constantFrom(-1, 1),
      units: fc.integer({ min: 0, max: 511 }),
      exponent: fc.integer({ min: -24, max: 12 }),
    })
    .map(({ sign, units, exponent }) => sign * units * 2 ** exponent),
  fc
    .record({
      sign: fc.constantFrom(-1, 1),
      end: fc.constantFrom(
        ...FORMATS.flatMap((format) => {
          const { max, minPositive } = factsOf(format);
          return [max, minPositive];
        }),
      ),
      eighths: fc.integer({ min: 0, max: 24 }),
    })
    .map(({ sign, end, eighths }) => Math.fround(sign * end * (eighths / 8))),
  fc.constantFrom(0, -0, Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY),
);

const settings = fc.record({
  format: fc.constantFrom(...FORMATS),
  rounding: fc.constantFrom(...ROUNDINGS),
  overflow: fc.constantFrom(...OVERFLOWS),
  seed: fc.bigInt({ min: 0n, max: 2n ** 64n - 1n }),
  offset: fc.bigInt({ min: 0n, max: 2n ** 64n - 1n }),
});

/** Fails unless every statement of an explanation is true. */
function requireTrue(x: number, options: ExplainEncodeOptions & { readonly format: ScalarFormat }): void {
  const explanation = explainEncode(x, options);
  const { format, rounding } = options;
  const { lower, upper, fraction, tie, decision, code, result, random } = explanation;
  const { signed, subnormals, specials } = SCALAR_FORMATS[format];
  const { maxCode, max, minPositive, bits } = factsOf(format);
  const input = signed ? x : Math.abs(x);
  const magnitude = Math.abs(x);
  expect(result).toBe(valueOfCode(format, code));
  expect(explanation).toMatchObject({ format, rounding, overflow: options.overflow });
  expect(decision === "exact").toBe(Number.isFinite(x) && result === input);
  expect(tie).toBe(fraction === 0.5);
  const isSmaller = !subnormals && magnitude < minPositive;
  expect(lower === undefined).toBe(!Number.isFinite(x) || isSmaller);
  if (!lower) {
    expect([upper, fraction]).toEqual([undefined, 0]);
    const pattern = Number.isNaN(x) ? /^NaN/ : isSmaller ? /^below the smallest value/ : /^infinity: /;
    expect(decision).toMatch(pattern);
    return;
  }
  const signBit = signed ? 2 ** (bits - 1) : 2 ** bits;
  // the index of a code among the codes of its sign, from zero up, and the last index
  const place = (code: number) =>
    isIntegral(specials) && code >= signBit ? 2 * signBit - code : code % signBit;
  const lastCode = maxCode + (specials === "integer" && x < 0 ? 1 : 0);
  expect(Math.abs(lower.value)).toBeLessThanOrEqual(magnitude);
  expect(lower.value).toBe(valueOfCode(format, lower.code));
  if (!upper) {
    expect([place(lower.code), fraction]).toEqual([lastCode, 0]);
    if (lastCode === maxCode) expect(Math.abs(lower.value)).toBe(max);
    expect(decision).toMatch(/^beyond the largest value: /);
    return;
  }
  // the neighbours are adjacent codes, and the number lies at the stated fraction between them
  expect(Math.abs(upper.value)).toBeGreaterThan(magnitude);
  expect(Math.abs(lower.value) + fraction * (Math.abs(upper.value) - Math.abs(lower.value))).toBe(magnitude);
  if (upper.code === undefined) expect(place(lower.code)).toBe(lastCode);
  else {
    expect(place(upper.code) - place(lower.code)).toBe(1);
    expect(upper.value).toBe(valueOfCode(format, upper.code));
  }
  const isEnd = [lower.code, upper.code].includes(code);
  expect(isEnd || /beyond the largest value: becomes (infinity|NaN)$/.test(decision)).toBe(true);
  if (/^tie: /.test(decision)) expect(tie).toBe(true);
  if (/saturates$|becomes|stays/.test(decision)) return;
  if (/^above the middle$/.test(decision)) expect([fraction > 0.5, code]).toEqual([true, upper.code]);
  if (/^below the middle$/.test(decision)) expect([fraction < 0.5, code]).toEqual([true, lower.code]);
  if (/^(toward zero|.*down to)/.test(decision)) expect(code).toBe(lower.code);
  if (/^(away from zero|.*up to)/.test(decision)) expect(code).toBe(upper.code);
  if (random && fraction > 0) expect(code === upper.code).toBe(random.bits < random.discarded);
}

describe("explanations of roundings", () => {
  it("have the code of encode for every format, rounding and overflow, and say nothing that is not so", () => {
    const values = fc.array(f32Value, { minLength: COUNT, maxLength: COUNT });
    fc.assert(
      fc.property(values, settings, (xs, options) => {
        using _scope = new Scope();
        const x = tensor(backend(), Float32Array.from(xs), [1, COUNT]);
        const { codes } = download(encode(x, options));
        for (const [index, value] of xs.entries()) {
          expect(explainEncode(value, { ...options, index }).code).toBe(codes[index]);
          requireTrue(value, { ...options, index });
        }
      }),
      { numRuns: draws(500) },
    );
  });

  it("have the code of encode at the limits of every format, in every mode", () => {
    using _scope = new Scope();
    for (const format of FORMATS) {
      const { max, minPositive, maxCode } = factsOf(format);
      const belowMax = valueOfCode(format, maxCode - 1);
      const step = max - belowMax;
      const largeValues = [
        max - step / 2,
        max,
        max + step / 4,
        max + step / 2,
        max + step,
        max + 2 * step,
        4 * max,
      ];
      const smallValues = [
        minPositive / 4,
        minPositive / 2,
        (3 * minPositive) / 4,
        minPositive,
        1.5 * minPositive,
      ];
      const magnitudes = [0, ...smallValues, ...largeValues, Number.POSITIVE_INFINITY, Number.NaN];
      const values = Float32Array.from(magnitudes.flatMap((value) => [value, -value]));
      const x = tensor(backend(), values, [1, values.length]);
      for (const rounding of ROUNDINGS)
        for (const overflow of OVERFLOWS) {
          const options = { format, rounding, overflow, seed: 1n, offset: 2n };
          const explainedCodes = Array.from(
            values,
            (value, index) => explainEncode(value, { ...options, index }).code,
          );
          const { codes } = download(encode(x, options));
          expect(explainedCodes, JSON.stringify({ format, rounding, overflow })).toEqual([...codes]);
        }
    }
  });

  it("have an explanation of every code's value and of both of its ties, which decide as encode does", () => {
    for (const format of FORMATS) {
      const { bits } = factsOf(format);
      if (bits > 8) continue;
      const values = Array.from({ length: 2 ** bits }, (_, code) => valueOfCode(format, code)).filter(
        Number.isFinite,
      );
      const sortedValues = values.toSorted((a, b) => a - b);
      const middles = sortedValues.slice(1).map((value, i) => (value + (sortedValues[i] as number)) / 2);
      for (const rounding of ROUNDINGS)
        for (const x of sampleCases([...values, ...middles], 8, ROUNDINGS.indexOf(rounding)))
          requireTrue(Math.fround(x), { format, rounding, overflow: "saturate" });
    }
  });

  it("have the code of encode for random bits around the carry", () => {
    const distances = [-(2 ** 16), -1, 0, 1, 2 ** 16];
    fc.assert(
      fc.property(f32Value, settings, fc.nat(2 ** 32 - 1), (x, { format, overflow }, anyBits) => {
        using _scope = new Scope();
        const options = { format, overflow, rounding: "stochastic" } as const;
        const { random } = explainEncode(x, { ...options, randomBits: 0 });
        const carry = 2 ** 32 - (random?.discarded ?? 0);
        const bits = [
          anyBits,
          ...distances.map((distance) => Math.min(Math.max(carry + distance, 0), 2 ** 32 - 1)),
        ];
        const codes = encode(tensor(backend(), new Float32Array(bits.length).fill(x)), {
          ...options,
          randomBits: tensor(backend(), Uint32Array.from(bits), [bits.length], "u32"),
        });
        const explainedCodes = bits.map((randomBits) => explainEncode(x, { ...options, randomBits }).code);
        expect(explainedCodes).toEqual([...download(codes).codes]);
      }),
      { numRuns: draws(500) },
    );
  });

  it.each([
    [1000, "e4m3", "saturate", "beyond the largest value: saturates"],
    [1000, "e4m3", "nonfinite", "beyond the largest value: becomes NaN"],
    [1e6, "e5m2", "nonfinite", "beyond the largest value: becomes infinity"],
    [1000, "e2m1", "nonfinite", "beyond the largest value: saturates"],
    [2 ** -130, "e8m0", "saturate", "below the smallest value, which it becomes"],
    [-1.5, "e8m0", "saturate", "tie: up to the even code"],
  ] as const)("of %d in %s, %s, is %s", (x, format, overflow, decision) => {
    expect(explainEncode(x, { format, overflow }).decision).toBe(decision);
  });
});
