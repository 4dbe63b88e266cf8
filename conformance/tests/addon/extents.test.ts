/**
 * A call with strided arrays needs exactly the memory from the first to the last element of each array: it runs with this memory,
 * and is refused with one byte less. Sizes beyond any memory are refused, even if their products overflow.
 */
import * as fc from "fast-check";
import { expect, it } from "vitest";
import { type AddonExports, namingArguments } from "../../../src/backends/cuda/addon.js";
import type { NATIVE_CALLS } from "../../../src/backends/cuda/native-calls.js";
import { STAGING, WIDE } from "../../../src/formats/contract.gen.js";
import { factsOf } from "../../../src/formats/derive.js";
import { inSlots } from "../harness/addon/slots.js";
import { describeOnStandIn } from "../harness/addon/stand-in.js";

/** The maximum memory that a test allocates. */
const ROOM = 2n ** 14n;

const size = fc.oneof(
  { weight: 8, arbitrary: fc.nat(9) },
  { weight: 2, arbitrary: fc.constantFrom(16, 20, 32, 64, 100) },
  { weight: 1, arbitrary: fc.constantFrom(2 ** 20, 2 ** 31 - 1, 2 ** 32, 2 ** 47, 2 ** 52, 2 ** 53) },
);
const DRAWN = fc.record({
  batch: fc.oneof(fc.integer({ min: 1, max: 3 }), fc.constant(2 ** 31 - 1)),
  rows: size,
  columns: size,
  depth: size,
  pitch: size,
  otherPitch: size,
  length: fc.constantFrom(1, 3, 16, 32),
  shift: fc.constantFrom(0, 1, 7, 31),
  flag: fc.boolean(),
  dtype: fc.constantFrom("f32" as const, "bf16" as const, "f16" as const),
});
type Drawn = typeof DRAWN extends fc.Arbitrary<infer D> ? D : never;

interface Arrays {
  readonly numbers: Readonly<Record<string, number>>;
  /** The bytes of each array. */
  readonly bytes: Readonly<Record<string, bigint>>;
  /** Numbers that have a maximum, each with it. The sizes of empty arrays may exceed the maximum. */
  readonly limits?: readonly (readonly [number | bigint, number])[];
}

/** The bytes of `lines` lines of `length` elements that start `pitch` elements apart. */
function stridedBytes(lines: bigint, length: number, pitch: number, elementBytes: number): bigint {
  return lines === 0n ? 0n : ((lines - 1n) * BigInt(pitch) + BigInt(length)) * BigInt(elementBytes);
}

const product = (...sizes: readonly number[]): bigint =>
  sizes.reduce((count, size) => count * BigInt(size), 1n);

/** The calls with strides: their numbers, and the bytes of each array. */
const CALLS: Readonly<Record<string, (draw: Drawn) => Arrays>> = {
  gemmPlain({ batch, rows, columns, depth, pitch, otherPitch }) {
    const [xPitch, wPitch] = [4 * Math.floor(pitch / 4), 4 * Math.floor(otherPitch / 4)];
    return {
      numbers: { batch, rows, columns, depth, xPitch, wPitch, outPitch: otherPitch },
      bytes: {
        x: stridedBytes(product(batch, rows), depth, xPitch, 4),
        w: stridedBytes(product(batch, columns), depth, wPitch, 4),
        out: stridedBytes(product(batch, rows), columns, otherPitch, 4),
      },
      limits: [
        [product(batch, rows), 2 ** 53],
        [product(batch, columns), 2 ** 53],
      ],
    };
  },
  gemmFewRows({ rows: drawnRows, columns, depth: steps, pitch, otherPitch, length, shift, dtype }) {
    const [rows, depth] = [Math.max(drawnRows, 1), 128 * steps];
    const isEmpty = columns === 0 || depth === 0;
    const [at, from] = [Math.floor((columns - 1) / 2 ** shift), Math.floor((depth - 1) / length)];
    return {
      numbers: {
        ...{ rows, columns, depth, splits: 1, word: factsOf("e4m3").word, outType: WIDE[dtype] },
        ...{ "factors.alpha": 1, "factors.inverse": 1 },
        "scales.word": factsOf("e8m0").word,
        "scales.lineShift": shift,
        "scales.length": length,
        "scales.lineStride": pitch,
        "scales.blockStride": otherPitch,
      },
      bytes: {
        x: product(rows, depth, 2),
        data: product(columns, depth),
        "scales.data": isEmpty ? 0n : product(at, pitch) + product(from, otherPitch) + 1n,
        out: product(rows, columns, dtype === "f32" ? 4 : 2),
      },
      limits: [
        [rows, 64],
        [columns, 2 ** 31 - 1],
        [depth, 2 ** 31 - 1],
      ],
    };
  },
  gemmOperand({ rows: lines, depth, pitch, otherPitch, length, shift, flag, columns: outLines }) {
    const outPitch = 16 * Math.floor(otherPitch / 16);
    const isEmpty = lines === 0 || depth === 0;
    const [lastLine, from] = [Math.floor((lines - 1) / 2 ** shift), Math.floor((depth - 1) / length)];
    const scales = isEmpty ? 0n : product(lastLine, pitch) + product(from, otherPitch) + 1n;
    return {
      numbers: {
        batch: 1,
        word: factsOf("e4m3").word,
        transposed: Number(flag),
        lines,
        depth,
        "scales.word": factsOf("e8m0").word,
        "scales.lineShift": shift,
        "scales.length": length,
        "scales.lineStride": pitch,
        "scales.blockStride": otherPitch,
        staging: STAGING.bf16,
        outLines,
        outPitch,
      },
      bytes: {
        data: product(lines, depth),
        "scales.data": scales,
        out: product(outLines, outPitch),
      },
      limits: [[depth, 2 ** 31 - 1]],
    };
  },
  gemmEpilogue({ batch, rows, columns, pitch, otherPitch: skipped, flag, dtype }) {
    const totalRows = batch * rows;
    const lines = rows === 0 ? 0n : product(batch - 1, skipped) + product(batch, rows);
    const isSingle = flag && batch === 1;
    return {
      numbers: {
        ...{ "factors.alpha": 1, "factors.inverse": 1, beta: 1, outScale: 1 },
        ...{ linesW: Number(isSingle), linesX: Number(isSingle), lineAmaxesW: 0, lineAmaxesX: 0, split: 0 },
        ...{ sumsPitch: pitch, sumsSkipped: skipped, rows: totalRows, itemRows: Math.max(rows, 1), columns },
        ...{ cType: WIDE[dtype], biasType: WIDE[dtype], word: factsOf("bf16").word },
      },
      bytes: {
        sums: stridedBytes(lines, columns, pitch, 4),
        "factors.scaleW": isSingle ? 4n * BigInt(columns) : 4n,
        "factors.scaleX": isSingle ? 4n * BigInt(totalRows) : 4n,
        c: product(totalRows, columns, dtype === "f32" ? 4 : 2),
        bias: product(columns, dtype === "f32" ? 4 : 2),
        out: product(totalRows, columns, 2),
        amax: 4n,
      },
      limits: [
        [product(batch, rows), 2 ** 53],
        [product(rows === 0 ? 0 : batch - 1, skipped), 2 ** 53],
        [product(rows === 0 ? 0 : Number(lines) - 1, pitch), 2 ** 53],
        [columns, 2 ** 31 - 1],
      ],
    };
  },
  fold({ batch: ranks, rows: count, pitch, flag, dtype }) {
    const width = dtype === "f32" ? 4 : 2;
    const stride = Math.max(count, pitch);
    const optional = flag ? { own: product(count, width) } : {};
    return {
      numbers: {
        stride,
        ranks,
        count,
        factor: 1,
        type: WIDE[dtype],
        sumType: WIDE.f32,
        maximum: 0,
        ownAt: 0,
      },
      bytes: {
        parts: stridedBytes(BigInt(ranks - Number(flag)), count, stride, width),
        ...optional,
        out: product(count, width),
      },
    };
  },
};

describeOnStandIn("an array with strides", (exports: AddonExports) => {
  const addon = namingArguments(exports);
  const { numRuns, seed } = {
    numRuns: Number(process.env.RUNS ?? 600),
    seed: Number(process.env.SEED ?? 1),
  };

  it.each(Object.keys(CALLS))("has the bytes from its first to its last element: %s", (name) => {
    const operation = name as keyof typeof NATIVE_CALLS & keyof AddonExports;
    const device = new addon.Device(0);
    let launchCount = 0;
    let refusalCount = 0;
    const check = (draw: Drawn, short: number): void => {
      const { numbers, bytes, limits = [] } = (CALLS[name] as (draw: Drawn) => Arrays)(draw);
      const sizes = Object.values(bytes);
      const isPossible =
        sizes.every((size) => size <= ROOM) && limits.every(([value, limit]) => value <= limit);
      const room = sizes.map((size) => Number(size < ROOM ? size : ROOM));
      const blocks = room.map((byteCount) => addon.allocate(device, byteCount));
      const addresses = Object.fromEntries(Object.keys(bytes).map((key, i) => [key, blocks[i] as number]));
      const call = () =>
        exports[operation](device, inSlots(operation, { ...numbers, ...addresses }) as never);
      if (isPossible) {
        call();
        launchCount++;
        const [key, size] = [
          Object.keys(bytes)[short % sizes.length] as string,
          room[short % sizes.length] as number,
        ];
        if (size > 1) {
          const smaller = addon.allocate(device, size - 1);
          addresses[key] = smaller;
          expect(call, key).toThrow(/are needed/);
          addon.free(device, smaller);
        }
      } else {
        expect(call).toThrow(/are needed|exceeds 2\^53|, above |is not an integer/);
        refusalCount++;
      }
      for (const block of blocks) addon.free(device, block);
    };
    try {
      fc.assert(fc.property(DRAWN, fc.nat(20), check), { numRuns, seed });
    } finally {
      addon.close(device);
    }
    expect(Math.min(launchCount, refusalCount)).toBeGreaterThan(numRuns / 20);
  });
});
