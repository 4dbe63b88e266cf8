/** Carries the codes and scales of a quantized weight over to another convention, so that no value is rounded again. */
import { FileError } from "../../../errors.js";
import { bytesOf } from "../../bytes.js";
import { CODE_TYPES } from "../stored/code-types.js";
import { conventionOf } from "../stored/conventions.js";
import { codeRows } from "../stored/rows.js";
import { readScales, scaleOf } from "../stored/scales.js";
import { matricesOf, type QuantizedWeight } from "../stored/weight.js";
import { compareRows } from "./compare.js";
import { encodeScales } from "./encode-scales.js";
import type { Output } from "./output.js";
import { inFileOrder, type Parts } from "./parts.js";
import type { Target } from "./targets.js";
import { Changes } from "./wide.js";

const COPY_BYTES = 8 << 20;
/** The largest exponent of e4m3. */
const MAX_POWER = 8;

/** The scales of a weight under a target, for each of its blocks. */
export interface Carried {
  /** The f32 scales before. */
  readonly before: Float32Array;
  /** The f32 scales afterwards; `before` itself if no value changes. */
  readonly after: Float32Array;
  /** The scales of blocks in the type of the target. */
  readonly bytes: Uint8Array;
  /** The scale beside those of blocks. */
  readonly global: number | undefined;
}

/** The scales of a weight under a target; undefined if its codes or its scales cannot be carried over. Reads all scales. */
export async function carried(
  weight: QuantizedWeight,
  target: Target,
  parts: Parts,
): Promise<Carried | undefined> {
  if (weight.type !== parts.type || !isNested(weight, parts)) return undefined;
  const stored = await readScales(weight);
  const blocks = spread(weight, parts, stored.values);
  const before = blocks.map((value) => scaleOf(stored, value));
  if (!before.every((value) => Number.isFinite(value) && value >= 0)) return undefined;
  if (!parts.global) {
    const bytes = encodeScales(parts.scale.dtype, before);
    return bytes && { before, after: before, bytes, global: undefined };
  }
  const divides = conventionOf(target.convention).global?.role === "divisor";
  const choices =
    stored.storedGlobal === undefined
      ? factorsOf(before).map((factor) => ({
          global: divides ? 1 / factor : factor,
          values: before.map((value) => value / factor),
        }))
      : [{ global: nearest(blocks, before, stored, divides), values: blocks }];
  for (const { global, values } of choices) {
    const bytes = encodeScales(parts.scale.dtype, values);
    if (!bytes || !Number.isFinite(global)) continue;
    const after = values.map((value) => scaleOf({ global, divides }, value));
    return { before, after: same(before, after) ? before : after, bytes, global };
  }
  return undefined;
}

/** Factors of all scales beside which those of blocks may be e4m3: none, and the power of two that makes the largest one 2^8. */
function factorsOf(scales: Float32Array): readonly number[] {
  const largest = scales.reduce((max, value) => Math.max(max, value), 0);
  return largest === 0 ? [1] : [1, 2 ** (Math.floor(Math.log2(largest)) - MAX_POWER)];
}

const same = (a: Float32Array, b: Float32Array): boolean => a.every((value, i) => value === b[i]);

/** Whether each block of the target lies within one block of the weight. */
function isNested({ geometry, shape }: QuantizedWeight, { blocks }: Parts): boolean {
  const [, ...sizes] = matricesOf(shape);
  if (blocks.kind === "whole" && (geometry.kind !== "whole" || shape.length > 2)) return false;
  return sizes.every((size, axis) => {
    const [own = 1, wanted = 1] = [geometry.block[axis], blocks.size[axis]];
    return own >= size || own % wanted === 0;
  });
}

/** The scale of each block of the target, of scales of the weight. */
function spread({ geometry, shape }: QuantizedWeight, { blocks }: Parts, values: Float32Array): Float32Array {
  const [matrices] = matricesOf(shape);
  const [rows, columns] = blocks.grid;
  const [[height, width], grid] = [blocks.size, geometry.grid];
  const [ownHeight, ownWidth] = geometry.block;
  const all = new Float32Array(matrices * rows * columns);
  for (let matrix = 0, at = 0; matrix < matrices; matrix++)
    for (let row = 0; row < rows; row++) {
      const line = geometry.kind === "whole" ? 0 : matrix * grid[0] + Math.floor((row * height) / ownHeight);
      for (let column = 0; column < columns; column++, at++)
        all[at] = values[line * grid[1] + Math.floor((column * width) / ownWidth)] ?? Number.NaN;
    }
  return all;
}

const WORD = new Uint32Array(1);
const FLOAT = new Float32Array(WORD.buffer);

function neighbour(value: number, step: number): number {
  FLOAT[0] = value;
  WORD[0] = (WORD[0] as number) + step;
  return FLOAT[0] as number;
}

interface Global {
  readonly global: number;
  readonly divides: boolean;
}

/** The global scale of the other role with which the fewest scales change. */
function nearest(blocks: Float32Array, before: Float32Array, own: Global, divides: boolean): number {
  if (own.divides === divides) return own.global;
  const counts = new Map<number, { readonly scale: number; count: number }>();
  blocks.forEach((value, i) => {
    const found = counts.get(value);
    if (found) found.count++;
    else counts.set(value, { scale: before[i] as number, count: 1 });
  });
  const reciprocal = Math.fround(1 / own.global);
  const changed = (global: number): number =>
    [...counts].reduce(
      (sum, [value, { scale, count }]) => sum + (scaleOf({ global, divides }, value) === scale ? 0 : count),
      0,
    );
  const candidates = [0, -1, 1].map((step) => neighbour(reciprocal, step));
  const [best = reciprocal] = candidates.toSorted((a, b) => changed(a) - changed(b));
  return best;
}

/** Writes codes and scales. Reads the codes as values only if scales change. */
export async function writeCarried(
  weight: QuantizedWeight,
  target: Target,
  parts: Parts,
  output: Output,
): Promise<Changes> {
  const scales = await carried(weight, target, parts);
  if (!scales)
    throw new FileError(`tensor "${weight.name}": its scales have changed since they were read first`);
  const { before, after, bytes, global } = scales;
  const { shard, entry } = weight.codes;
  const size = entry.end - entry.begin;
  const [matrices] = matricesOf(weight.shape);
  const step = bytes.length / matrices;
  for (let matrix = 0; matrix < matrices; matrix++)
    await output.append(
      parts.scale,
      inFileOrder(target, bytes.subarray(matrix * step, (matrix + 1) * step), parts.blocks.grid[1]),
    );
  for (let at = 0; at < size; at += COPY_BYTES)
    await output.append(parts.codes, await shard.read(entry, at, Math.min(size, at + COPY_BYTES)));
  if (parts.global) await output.append(parts.global, bytesOf(Float32Array.of(global ?? 1)));
  const changes = new Changes();
  if (before === after) changes.elements = weight.shape.reduce((product, length) => product * length, 1);
  else await compareCodes(weight, parts, before, after, changes);
  return changes;
}

async function compareCodes(
  weight: QuantizedWeight,
  { blocks, type }: Parts,
  before: Float32Array,
  after: Float32Array,
  changes: Changes,
): Promise<void> {
  const worth = CODE_TYPES[type].values;
  const { size, grid, kind } = blocks;
  for await (const { matrix, row, rows, columns, codes } of codeRows(weight)) {
    const first = kind === "whole" ? 0 : (matrix * grid[0] + Math.floor(row / size[0])) * grid[1];
    const values = Float64Array.from(codes, (code) => worth[code] as number);
    for (let i = 0; i < values.length; i++) {
      const line = kind === "whole" ? 0 : Math.floor(Math.floor(i / columns) / size[0]) * grid[1];
      values[i] =
        (values[i] as number) * (before[first + line + Math.floor((i % columns) / size[1])] as number);
    }
    compareRows({ blocks, type }, { rows, columns, values }, codes, after.subarray(first), changes);
  }
}
