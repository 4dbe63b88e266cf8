/** A weight is compared with its original element by element, and a wrong reading of it is named. */
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { FindingName } from "../../../src/cli/checkpoints/judge/findings.js";
import { compareOriginal } from "../../../src/cli/checkpoints/judge/original.js";
import { CODE_TYPES } from "../../../src/cli/checkpoints/stored/code-types.js";
import type { Checkpoint } from "../../../src/cli/checkpoints/stored/open.js";
import { readScales } from "../../../src/cli/checkpoints/stored/scales.js";
import type { QuantizedWeight } from "../../../src/cli/checkpoints/stored/weight.js";
import { MemorySource } from "../../../src/io/source.js";
import { heldAs } from "./plain.js";
import { type Drawn, KINDS, weights } from "./weights.js";

const DTYPES = { f32: "F32", bf16: "BF16", f16: "F16" } as const;

/** A checkpoint with the original of a weight. */
function originalOf(
  { name, shape }: QuantizedWeight,
  of: keyof typeof DTYPES,
  wanted: readonly number[],
): { readonly checkpoint: Checkpoint; readonly values: readonly number[] } {
  const { bytes, values } = heldAs(of, wanted);
  const held = new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const shard = new MemorySource("original", [{ name, dtype: DTYPES[of], shape, bytes: held }]);
  const tensors = new Map([[name, { shard, entry: shard.entry(name) }]]);
  const checkpoint = {
    path: "original",
    folder: "",
    whole: true,
    shards: [shard],
    tensors,
    metadata: {},
    findings: [],
  };
  return { checkpoint: { ...checkpoint, close: async () => {} }, values };
}

const valuesOf = ({ weight, codes, scales }: Drawn): number[] =>
  codes.map((code, i) => (CODE_TYPES[weight.type].values[code] as number) * (scales[i] as number));

describe("the error against an original", () => {
  it.each(KINDS)("of $convention, scales $scale by $kind, is that of plain loops", async (kind) => {
    const shares = fc.array(fc.constantFrom(0, 1, 1, 1, 1.0625, 0.5, -2), { minLength: 1, maxLength: 7 });
    const types = fc.constantFrom(...(["f32", "bf16", "f16"] as const));
    await fc.assert(
      fc.asyncProperty(weights(kind), shares, types, async (drawn, factors, of) => {
        const own = valuesOf(drawn);
        const wanted = own.map((value, i) => value * (factors[i % factors.length] as number));
        const { checkpoint, values } = originalOf(drawn.weight, of, wanted);
        // NaN and infinities have no error that tells anything
        if (![...own, ...values].every(Number.isFinite)) return;
        const { error } = await compareOriginal(drawn.weight, await readScales(drawn.weight), checkpoint);
        const differences = own.map((value, i) => Math.abs(value - (values[i] as number)));
        const power = (all: readonly number[]): number => all.reduce((sum, each) => sum + each * each, 0);
        const relative = power(values) > 0 ? Math.sqrt(power(differences) / power(values)) : 0;
        expect(error?.max).toBe(differences.reduce((most, each) => Math.max(most, each), 0));
        if (power(values) > 0 && Number.isFinite(power(values)))
          expect(Math.abs((error?.relative ?? 0) - relative)).toBeLessThanOrEqual(1e-9 * relative);
      }),
      { numRuns: 40 },
    );
  });
});

type Read = (scales: Float32Array) => Float32Array;

/**
 * A weight of two matrices whose grids of scales are square, with a scale of its own in each block: all are equal at `spread` 0.
 * `read` makes the right scales of those that are stored.
 */
function planted(convention: "ct-nvfp4" | "block-fp8", read: Read, spread = 1): Drawn {
  const isTile = convention === "block-fp8";
  const [size, block] = isTile ? [256, [128, 128] as const] : [4, [1, 16] as const];
  const [rows, columns] = isTile ? [size, size] : [size, 16 * size];
  const type = isTile ? "e4m3" : "e2m1";
  const grid = [rows / block[0], columns / block[1]] as const;
  const area = grid[0] * grid[1];
  const stored = Float32Array.from(
    { length: 2 * area },
    (_, i) => 2 ** (spread * (((i * 5) % 7) - 3)) * (1 + (spread * i) / 64),
  );
  const count = 2 * rows * columns;
  // positive codes from the middle of the range, so that each other reading is far off
  const codes = Array.from({ length: count }, (_, i) => (isTile ? 0x38 + ((i * 7) % 24) : 1 + ((i * 5) % 7)));
  const bytes = isTile
    ? Uint8Array.from(codes)
    : Uint8Array.from(
        { length: count / 2 },
        (_, i) => (codes[2 * i] as number) | ((codes[2 * i + 1] as number) << 4),
      );
  const held = new Uint8Array(stored.buffer);
  const shard = new MemorySource("drawn", [
    { name: "codes", dtype: "U8", shape: [bytes.length], bytes },
    { name: "scale", dtype: "F32", shape: [stored.length], bytes: held },
  ]);
  const tensor = (name: string) => ({ shard, entry: shard.entry(name) });
  const right = read(stored);
  return {
    weight: {
      name: "layer.weight",
      convention,
      type,
      shape: [2, rows, columns],
      codes: tensor("codes"),
      scale: tensor("scale"),
      geometry: { kind: isTile ? "tile" : "group", block, grid, swizzled: false },
    },
    codes,
    scales: codes.map((_, i) => {
      const [row, column] = [Math.floor(i / columns), i % columns];
      const line = Math.floor(row / rows) * grid[0] + Math.floor((row % rows) / block[0]);
      return right[line * grid[1] + Math.floor(column / block[1])] as number;
    }),
  };
}

describe("a wrong reading is named", () => {
  const transposed = (size: number) => (scales: Float32Array) =>
    scales.map((_, at) => {
      const [matrix, within] = [Math.floor(at / size ** 2), at % size ** 2];
      return scales[matrix * size ** 2 + (within % size) * size + Math.floor(within / size)] as number;
    });
  const CASES: readonly (readonly [
    FindingName,
    "ct-nvfp4" | "block-fp8",
    (scales: Float32Array) => Float32Array,
  ])[] = [
    ["scale-axis", "ct-nvfp4", transposed(4)],
    ["scale-axis", "block-fp8", transposed(2)],
    ["scale-inverted", "ct-nvfp4", (scales) => scales.map((scale) => 1 / scale)],
    ["scale-inverted", "block-fp8", (scales) => scales.map((scale) => 1 / scale)],
    ["codes-fnuz", "block-fp8", (scales) => scales.map((scale) => scale / 2)],
    ["codes-fnuz", "block-fp8", (scales) => scales.map((scale) => scale * 2)],
    ["values-apart", "block-fp8", (scales) => scales.map((scale, i) => scale * (i % 2 === 0 ? 1.5 : 1))],
    ["values-apart", "ct-nvfp4", (scales) => scales.map((scale, i) => scale * (i % 2 === 0 ? 2 : 1))],
  ];

  it.each(CASES)("%s, of %s in two matrices", async (name, convention, read) => {
    const drawn = planted(convention, read);
    const { checkpoint } = originalOf(drawn.weight, "f32", valuesOf(drawn));
    const scales = await readScales(drawn.weight);
    const { findings } = await compareOriginal(drawn.weight, scales, checkpoint);
    expect(findings.map((each) => each.name)).toEqual([name]);
  });

  it("only if it explains the original, and has at most half the error of the own reading", async () => {
    const LIMIT = 0.3;
    const seen = { named: 0, close: 0 };
    for (let spread = 0.05; spread < 0.3; spread += 0.02)
      for (let mix = 0.5; mix < 0.9; mix += 0.03) {
        const turned = transposed(4);
        const drawn = planted(
          "ct-nvfp4",
          (own) => own.map((s, i) => s + mix * ((turned(own)[i] ?? 0) - s)),
          spread,
        );
        const original = originalOf(drawn.weight, "f32", valuesOf(drawn));
        const scales = await readScales(drawn.weight);
        const { findings, error } = await compareOriginal(drawn.weight, scales, original.checkpoint);
        const other = planted("ct-nvfp4", turned, spread);
        let [squares, power] = [0, 0];
        for (const [i, value] of valuesOf(other).entries()) {
          squares += (value - (original.values[i] as number)) ** 2;
          power += (original.values[i] as number) ** 2;
        }
        const own = error?.relative ?? 0;
        const relative = Math.sqrt(squares / power);
        if (own <= LIMIT) expect(findings).toEqual([]);
        else {
          const isNamed = relative < Math.min(LIMIT, own / 2);
          expect(findings.map((each) => each.name)).toEqual([isNamed ? "scale-axis" : "values-apart"]);
          if (isNamed) seen.named++;
          else if (relative < LIMIT) seen.close++;
        }
      }
    expect(Math.min(seen.named, seen.close)).toBeGreaterThan(0);
  });
});
