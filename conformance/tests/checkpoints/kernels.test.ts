/** The results and counts of the conversion kernels equal plain loops over elements. */
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { Changes } from "../../../src/checkpoints/convert/changes/changes.js";
import { compareRows } from "../../../src/checkpoints/convert/changes/compare.js";
import { WIDE_TARGETS, type WideTarget } from "../../../src/checkpoints/convert/dequantize/round.js";
import { writeDequantized } from "../../../src/checkpoints/convert/dequantize/write.js";
import { repackScales } from "../../../src/checkpoints/convert/repack/scales.js";
import { writeRepacked } from "../../../src/checkpoints/convert/repack/write.js";
import { parseTarget } from "../../../src/checkpoints/convert/targets/named.js";
import { outputTensors } from "../../../src/checkpoints/convert/targets/tensors.js";
import { TensorAppender } from "../../../src/checkpoints/convert/tensor-appender.js";
import type { OnCodes } from "../../../src/checkpoints/judge/statistics/code-sums.js";
import { type Statistics, statisticsOf } from "../../../src/checkpoints/judge/statistics/statistics.js";
import { Kernels } from "../../../src/checkpoints/kernels/kernels.js";
import { readByteScales } from "../../../src/checkpoints/stored/byte-scales.js";
import { CODE_TYPES, type CodeTypeName } from "../../../src/checkpoints/stored/code-types.js";
import { conventionOf } from "../../../src/checkpoints/stored/conventions.js";
import { readScales } from "../../../src/checkpoints/stored/scales.js";
import type { QuantizedWeight } from "../../../src/checkpoints/stored/weight.js";
import { amaxesOf, plainSource } from "../../../src/checkpoints/values/source.js";
import { quantizerOf } from "../../../src/dialects/quantizer-of.js";
import { FileError } from "../../../src/errors.js";
import { valueOfCode } from "../../../src/formats/derive.js";
import { MemorySource } from "../../../src/io/source.js";
import { draws } from "../harness/draws.js";
import { bf16, countChanges, encodeAs, hasErrorOf, toCounts } from "./files/plain.js";
import { bitsOfByte, float, floats, KINDS, weightOf, weights } from "./files/weights.js";

describe("a weight becomes a wide type", () => {
  it.each(KINDS)("$convention, scales $scale by $kind", async (kind) => {
    const kernels = await Kernels.open();
    // two matrices, each with scales of its own
    const stack = weightOf(kind, {
      rows: kind.kind === "tile" ? 40 : 3,
      columns: kind.kind === "tile" ? 130 : 2 * (kind.block[1] || 16),
      lead: kind.kind === "whole" ? 1 : 2,
      palette: [bitsOfByte(0x38), bitsOfByte(0x40)],
      seed: 5,
      global: conventionOf(kind.convention).global ? 0.5 : undefined,
      numCodes: 16,
    });
    await fc.assert(
      fc.asyncProperty(
        weights(kind),
        fc.constantFrom<WideTarget>(...WIDE_TARGETS),
        async ({ weight, codes, scales }, target) => {
          const chunks: Uint8Array[] = [];
          const changes = await writeDequantized(kernels, weight, target, async (bytes) => {
            chunks.push(bytes.slice());
          });
          const values = codes.map(
            (code, i) => (CODE_TYPES[weight.type].values[code] ?? 0) * (scales[i] ?? 0),
          );
          const bytes = Buffer.concat(chunks);
          const roundedValues = values.map((value) =>
            target === "bf16" ? bf16(value).value : Math.fround(value),
          );
          if (target === "bf16") {
            const bf16Bits = new Uint16Array(bytes.buffer, bytes.byteOffset, bytes.length / 2);
            expect([...bf16Bits]).toEqual(values.map((value) => bf16(value).bits));
          } else {
            const f32Values = new Float32Array(new Uint8Array(bytes).buffer);
            expect([...f32Values]).toEqual(roundedValues);
          }
          const isSame = (a: number, b: number): boolean => a === b || (Number.isNaN(a) && Number.isNaN(b));
          const pairs = values.map((value, i) => [value, roundedValues[i] ?? 0] as const);
          expect(toCounts(changes)).toEqual(countChanges(pairs, isSame));
          expect(hasErrorOf(changes, pairs)).toBe(true);
        },
      ),
      { numRuns: draws(60), examples: WIDE_TARGETS.map((target) => [stack, target]) },
    );
  });
});

/** Rows of values, codes and scales under one kind of code. */
const comparisons = (type: CodeTypeName, pairs: boolean) =>
  fc
    .record({
      rows: fc.integer({ min: 1, max: 9 }),
      columns: fc.integer({ min: 1, max: 70 }).map((unit) => unit * (pairs ? 2 : 1)),
      long: fc.boolean(),
      height: fc.integer({ min: 1, max: 4 }),
      width: fc.oneof(
        fc.integer({ min: 1, max: 24 }).map((unit) => unit * (pairs ? 2 : 1)),
        fc.constantFrom(16, 32),
      ),
      isWhole: fc.boolean(),
      dtype: fc.constantFrom("f32" as const, "bf16" as const, "f16" as const, "f64" as const),
      palette: fc.array(floats, { minLength: 1, maxLength: 8 }),
      table: fc.boolean(),
      scales: fc.array(floats, { minLength: 1, maxLength: 5 }),
      isNear: fc.boolean(),
      knownMaxima: fc.tuple(
        fc.constantFrom(0, 0.25, 1e30),
        fc.constantFrom(0, 1, 0.3, Number.POSITIVE_INFINITY),
      ),
      seed: fc.integer({ min: 1, max: 2 ** 31 - 1 }),
    })
    .map(({ long: isLong, ...fields }) => ({
      type,
      pairs,
      ...fields,
      columns: isLong ? fields.columns * 50 : fields.columns,
    }));

describe("values are compared with codes times scales", () => {
  // codes of more bits have two bytes, and no kernel reads them
  const types = (Object.keys(CODE_TYPES) as CodeTypeName[]).filter((type) => CODE_TYPES[type].bits <= 8);
  const cases = types.flatMap((type) =>
    CODE_TYPES[type].bits === 4 ? [[type, true] as const, [type, false] as const] : [[type, false] as const],
  );

  it.each(cases)("%s, two in a byte: %s", async (name, inPairs) => {
    const kernels = await Kernels.open();
    fc.assert(
      fc.property(comparisons(name, inPairs), (drawnCase) => {
        const {
          type,
          pairs,
          rows,
          columns,
          height,
          width,
          isWhole,
          dtype,
          palette,
          scales,
          isNear,
          knownMaxima,
        } = drawnCase;
        const codeValues = CODE_TYPES[type].values;
        let state = drawnCase.seed;
        const draw = (limit: number): number => {
          state = (Math.imul(state, 1103515245) + 12345) >>> 0;
          return Math.floor((state / 2 ** 32) * limit);
        };
        const count = rows * columns;
        const codes = Array.from({ length: count }, () => draw(codeValues.length));
        const grid = isWhole
          ? ([1, 1] as const)
          : ([Math.ceil(rows / height), Math.ceil(columns / width)] as const);
        const index = Array.from({ length: grid[0] * grid[1] }, () => draw(scales.length));
        const scaleAt = (i: number): number => {
          const line = isWhole ? 0 : Math.floor(Math.floor(i / columns) / height);
          const scaleIndex = isWhole ? 0 : line * grid[1] + Math.floor((i % columns) / width);
          return scales[index[scaleIndex] ?? 0] ?? 0;
        };
        // about half of the values equal their codes' values, so that some do not change
        const expected = codes.map((code, i) =>
          isNear && draw(2) === 0
            ? (codeValues[code] ?? 0) * scaleAt(i)
            : (palette[draw(palette.length)] ?? 0),
        );
        const encodedValues = encodeAs(dtype, expected);
        const bytes = pairs
          ? Uint8Array.from(
              { length: count / 2 },
              (_, i) => (codes[2 * i] ?? 0) | ((codes[2 * i + 1] ?? 0) << 4),
            )
          : Uint8Array.from(codes);
        const changes = new Changes();
        [changes.max, changes.relative] = knownMaxima;
        const size = [height, width] as const;
        compareRows(
          kernels,
          { blocks: { kind: isWhole ? "whole" : "tile", size, grid }, type },
          { rows, columns, type: dtype, values: encodedValues.bytes },
          bytes,
          drawnCase.table
            ? {
                values: Uint8Array.from(index),
                table: Float32Array.from({ length: 256 }, (_, i) => scales[i] ?? 0),
              }
            : { values: Float32Array.from(index, (i) => scales[i] ?? 0) },
          changes,
        );
        const comparedPairs = codes.map(
          (code, i) => [encodedValues.values[i] ?? 0, (codeValues[code] ?? 0) * scaleAt(i)] as const,
        );
        const expectedCounts = countChanges(comparedPairs, (original, converted) => original === converted);
        expect(hasErrorOf(changes, comparedPairs)).toBe(true);
        expect(toCounts(changes)).toEqual({
          ...expectedCounts,
          max: Math.max(knownMaxima[0], expectedCounts.max),
          relative: Math.max(knownMaxima[1], expectedCounts.relative),
        });
      }),
      { numRuns: draws(150) },
    );
  });
});

it("the largest relative change is the largest quotient to the last bit", async () => {
  const kernels = await Kernels.open();
  fc.assert(
    fc.property(
      fc.double({ min: 1 + 2 ** -50, max: 1.75, noNaN: true }),
      fc.nat(8),
      (original, changedIndex) => {
        // all elements but one equal the value of their code, 1
        const columns = 9;
        const quotient = (original - 1) / original;
        const bits = new BigUint64Array(Float64Array.of(quotient).buffer);
        const changes = new Changes();
        [changes.relative = 0] = new Float64Array(BigUint64Array.of((bits[0] ?? 0n) - 1n).buffer);
        const values = Float64Array.from({ length: columns }, (_, i) => (i === changedIndex ? original : 1));
        const code = CODE_TYPES.e4m3.values.indexOf(1);
        compareRows(
          kernels,
          { blocks: { kind: "whole", size: [1, columns], grid: [1, 1] }, type: "e4m3" },
          { rows: 1, columns, type: "f64", values },
          new Uint8Array(columns).fill(code),
          { values: Float32Array.of(1) },
          changes,
        );
        expect(changes).toMatchObject({ changed: 1, max: original - 1, relative: quotient });
      },
    ),
    { numRuns: draws(1000) },
  );
});

it("the amax of a tensor is the largest magnitude of its elements; NaN and infinity are refused", async () => {
  const kernels = await Kernels.open();
  const dtypes = { f32: "F32", bf16: "BF16", f16: "F16" } as const;
  await fc.assert(
    fc.asyncProperty(
      fc.array(floats, { minLength: 1, maxLength: 200 }),
      fc.constantFrom("f32" as const, "bf16" as const, "f16" as const),
      async (elements, dtype) => {
        const { bytes, values } = encodeAs(dtype, elements);
        const plan = { name: "w", dtype: dtypes[dtype], shape: [1, elements.length] };
        const rawBytes = new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength);
        const shard = new MemorySource("drawn", [{ ...plan, bytes: rawBytes }]);
        const source = plainSource({ shard, entry: shard.entry("w") });
        if (values.every(Number.isFinite))
          expect((await amaxesOf(kernels, source))[0]).toBe(Math.max(...values.map(Math.abs)));
        else await expect(amaxesOf(kernels, source)).rejects.toThrow(FileError);
      },
    ),
    { numRuns: draws(300) },
  );
});

/** The statistics of a weight. */
async function statisticsFor(
  kernels: Kernels,
  weight: QuantizedWeight,
  onCodes: OnCodes,
): Promise<Statistics> {
  const scales = (await readByteScales(kernels, weight)) ?? (await readScales(weight));
  return statisticsOf(kernels, weight, scales, onCodes);
}

describe("scales under a global scale of another role, or under a new global scale", () => {
  const group = { rows: 1, columns: 32, lead: 1, seed: 1 };
  // 1 times the reciprocal of the largest f32, which is rounded down, is infinite
  const infinite = { ...group, palette: [bitsOfByte(0x38)], global: float(0x7f7fffff), numCodes: 1 };
  // the reciprocal is beyond f32, and the largest f32 is not near it
  const beyondRange = { ...group, palette: [bitsOfByte(1)], global: float(0x00080000), numCodes: 16 };
  // the smallest e8m0 scale is 2^-127; the divisor that gives 2^8 is beyond f32, the divisor that gives 2^-1 is not
  const smallestScale = { ...group, palette: [bitsOfByte(0)], global: undefined, numCodes: 16 };
  // the quotient of the smaller scale by the factor of the larger one is 0 in f32
  const distantScales = {
    ...group,
    palette: [bitsOfByte(0xfe), bitsOfByte(0)],
    columns: 320,
    global: undefined,
    numCodes: 16,
  };
  const EXAMPLES = [
    ["ct-nvfp4", "modelopt-nvfp4", beyondRange],
    ["modelopt-nvfp4", "ct-nvfp4", infinite],
    ["ct-mxfp4", "modelopt-nvfp4", distantScales],
    ["ct-mxfp4", "ct-nvfp4", smallestScale],
  ] as const;

  it.each(EXAMPLES)(
    "%s as %s: the number of changed elements in the report is the number in the file",
    async (sourceName, targetName, example) => {
      const [kind] = KINDS.filter(({ convention }) => convention === sourceName);
      const target = parseTarget(targetName).dialectTarget;
      if (!kind || !target) throw new Error("no such kind or target");
      const kernels = await Kernels.open();
      const spec = quantizerOf({ dialect: targetName }).spec;
      let numRepacked = 0;
      let numChanged = 0;
      let numTallied = 0;
      await fc.assert(
        fc.asyncProperty(weights(kind), async ({ weight, codes, scales }) => {
          const outputParts = outputTensors(target, spec, {
            name: weight.name,
            shape: weight.shape,
            source: "f32",
          });
          const result = await repackScales(kernels, weight, target, outputParts);
          if (scales.some((scale) => !Number.isFinite(scale) || scale < 0)) expect(result).toBeUndefined();
          if (!result) return;
          numRepacked++;
          let files = new Map<string, Uint8Array[]>();
          let hasTallies = false;
          // without tallies, codes are decoded
          const changesWith = async (keepsTallies: boolean): Promise<Changes> => {
            files = new Map();
            const output = new TensorAppender(
              async (name, bytes) => {
                files.set(name, [...(files.get(name) ?? []), bytes.slice()]);
              },
              () => {},
            );
            return writeRepacked(kernels, weight, target, outputParts, output, async (_, onCodes) => {
              const { tallies, ...otherStatistics } = await statisticsFor(kernels, weight, onCodes);
              hasTallies = tallies !== undefined;
              return tallies && keepsTallies ? { ...otherStatistics, tallies } : otherStatistics;
            });
          };
          const changes = [await changesWith(true), await changesWith(false)];
          const bytesOf = (name: string): Buffer => Buffer.concat(files.get(name) ?? []);
          expect(bytesOf(outputParts.codes.name)).toEqual(
            Buffer.from(await weight.codes.shard.read(weight.codes.entry)),
          );
          const globalScale = bytesOf(outputParts.global?.name ?? "").readFloatLE();
          const scaleBytes = bytesOf(outputParts.scale.name);
          const scaleAt = codes.map((_, i) => {
            const block = valueOfCode("e4m3", scaleBytes[Math.floor(i / 16)] ?? 0);
            return Math.fround(targetName === "ct-nvfp4" ? block / globalScale : block * globalScale);
          });
          // a global scale is off by at most one unit in the last place: by 2^-21 of it if it is subnormal, but not below 2^-128
          const distantScales = scaleAt.filter((convertedScale, i) => {
            const originalScale = scales[i] ?? 0;
            return !(Math.abs(convertedScale - originalScale) <= 2 ** -20 * originalScale + 2 ** -149);
          });
          expect(distantScales).toEqual([]);
          const { values } = CODE_TYPES.e2m1;
          const pairs = codes.map((code, i): readonly [number, number] => [
            (values[code] ?? 0) * (scales[i] ?? 0),
            (values[code] ?? 0) * (scaleAt[i] ?? 0),
          ]);
          const expectedCounts = countChanges(pairs, (original, converted) => original === converted);
          if (result.rescaling && hasTallies) numTallied++;
          for (const counts of changes) {
            expect(toCounts(counts)).toEqual(expectedCounts);
            expect(hasErrorOf(counts, pairs)).toBe(true);
          }
          numChanged += expectedCounts.changed;
        }),
        { numRuns: 300, examples: [[weightOf(kind, example)]] },
      );
      expect(numRepacked).toBeGreaterThan(30);
      // a power of two is a factor that changes nothing
      if (sourceName === "ct-mxfp4") expect([numChanged, numTallied]).toEqual([0, 0]);
      else expect(Math.min(numChanged, numTallied)).toBeGreaterThan(0);
    },
  );
});
