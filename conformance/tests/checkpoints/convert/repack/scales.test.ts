/** Scales are repacked without rounding from every type that a convention allows: codes stay, and no value changes. */
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { DIALECT_TARGETS, parseTarget } from "../../../../../src/checkpoints/convert/targets/named.js";
import { CODE_TYPES } from "../../../../../src/checkpoints/stored/code-types.js";
import {
  CONVENTION_NAMES,
  type Convention,
  type ConventionName,
  conventionOf,
  type ScaleKind,
} from "../../../../../src/checkpoints/stored/conventions.js";
import { quantizerOf } from "../../../../../src/dialects/quantizer-of.js";
import { isLineWide, isTensorWide, tileSize } from "../../../../../src/formats/block.js";
import type { FileDType } from "../../../../../src/io/dtypes.js";
import { sampleCases } from "../../../harness/draws.js";
import { useBackend } from "../../../harness/suite.js";
import { convertTo, inFolder, type StoredTensor, valuesIn, writeContents } from "../../files/checkpoints.js";

const backend = useBackend({ threads: 1 });
/** Two tiles of 128 rows. */
const ROWS = 256;
const COLUMNS = 128;
const MODULE = "m.layers.0.o_proj";

const asBytes = (values: ArrayLike<number>): Buffer => Buffer.from(Float64Array.from(values).buffer);

/** A generator of integers below a bound. */
function drawer(seed: number): (limit: number) => number {
  let state = seed;
  return (limit) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * limit);
  };
}

/** Scales of a type with random significands, of about the size of trained weights' scales. */
function scalesOf(dtype: FileDType, shape: readonly number[], draw: (limit: number) => number): StoredTensor {
  const count = shape.reduce((product, size) => product * size, 1);
  const generate = (make: () => number): number[] => Array.from({ length: count }, make);
  const exponent = (bias: number): number => bias - 12 + draw(4);
  const bytes = {
    F32: () => Uint32Array.from(generate(() => (exponent(127) << 23) | draw(1 << 23))),
    BF16: () => Uint16Array.from(generate(() => (exponent(127) << 7) | draw(1 << 7))),
    F16: () => Uint16Array.from(generate(() => (exponent(15) << 10) | draw(1 << 10))),
    F8_E8M0: () => Uint8Array.from(generate(() => exponent(127))),
    U8: () => Uint8Array.from(generate(() => exponent(127))),
    F8_E4M3: () => Uint8Array.from(generate(() => 8 + draw(0x76))),
  }[dtype as "F32"]();
  return { dtype, shape, bytes: new Uint8Array(bytes.buffer) };
}

const SHAPES: Readonly<Partial<Record<ScaleKind, readonly number[]>>> = {
  whole: [1],
  row: [ROWS, 1],
  tile: [2, 1],
};

/** The kind of the scales of a target. */
function kindOf(target: string): ScaleKind {
  const dialect = parseTarget(target).dialectTarget?.dialect;
  const tile = dialect && quantizerOf({ dialect }).spec.tile;
  if (tile === undefined) return "group";
  return isTensorWide(tile) ? "whole" : isLineWide(tile) ? "row" : tileSize(tile)[0] > 1 ? "tile" : "group";
}

/** Whether a target can hold all scales of a source: its blocks are inside the source's blocks, and its type has all values. */
function isExact(row: Convention, kind: ScaleKind, target: string): boolean {
  const dialectTarget = parseTarget(target).dialectTarget;
  if (
    !dialectTarget ||
    dialectTarget.convention.startsWith("gguf") ||
    conventionOf(dialectTarget.convention).type !== row.type
  )
    return false;
  const isNested = kindOf(target) === kind || (kind === "whole" && kindOf(target) !== "group");
  return isNested && (dialectTarget.scale === "source" || dialectTarget.scale === "F32");
}

const CASES = CONVENTION_NAMES.flatMap((name) => {
  const row = conventionOf(name);
  const isMatrix = [".weight", "._weight_qdata"].includes(row.codes.suffix);
  if (row.container || CODE_TYPES[row.type].bits !== 8 || row.global || !isMatrix) return [];
  return row.kinds.flatMap((kind) =>
    SHAPES[kind] ? row.scale.dtypes.map((dtype) => [name, kind, dtype] as const) : [],
  );
});

/** Writes a checkpoint of one weight of a convention. */
async function writeWeight(folder: string, name: ConventionName, kind: ScaleKind, dtype: FileDType) {
  const { codes, scale, type } = conventionOf(name);
  const draw = drawer(dtype.length + kind.length);
  // leaves out the largest code: if every block reaches it, scales are not rounded
  const bytes = Uint8Array.from(
    { length: ROWS * COLUMNS },
    () => draw(type === "int8" ? 256 : 0x79) | (draw(2) << 7),
  );
  const tensors = new Map<string, StoredTensor>([
    [MODULE + codes.suffix, { dtype: codes.dtypes[0] as FileDType, shape: [ROWS, COLUMNS], bytes }],
    [MODULE + scale.suffix, scalesOf(dtype, SHAPES[kind] ?? [], draw)],
  ]);
  await writeContents(folder, { tensors, metadata: {}, json: new Map() });
}

describe("scales of every type of a convention are repacked exactly", () => {
  it.each(sampleCases(CASES, 4))("%s, a scale for each %s, in %s", async (name, kind, dtype) => {
    const exactTargets = DIALECT_TARGETS.filter((target) => isExact(conventionOf(name), kind, target));
    // one target for each type and kind of its scales
    const kindOfTarget = (target: string): string =>
      `${parseTarget(target).dialectTarget?.scale} ${kindOf(target)}`;
    const targets = [...new Map(exactTargets.map((target) => [kindOfTarget(target), target])).values()];
    expect(targets).not.toEqual([]);
    await inFolder(async (folder) => {
      await writeWeight(folder, name, kind, dtype);
      const original = await valuesIn(folder);
      for (const target of targets) {
        const out = join(folder, target);
        const { changes } = await convertTo(backend(), folder, out, target);
        expect([target, changes]).toMatchObject([
          target,
          [{ method: "repacked", changed: 0, elements: ROWS * COLUMNS }],
        ]);
        const [[originalValues, convertedValues] = []] = [...(await valuesIn(out))];
        expect(
          Buffer.compare(asBytes(original.get(originalValues ?? "") ?? []), asBytes(convertedValues ?? [])),
        ).toBe(0);
      }
    });
  });
});
