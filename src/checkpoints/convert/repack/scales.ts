/** Rescales a weight's scales for another convention, so that no value is rounded again. */
import type { KernelBuffer, Kernels } from "../../kernels/kernels.js";
import {
  BYTES,
  byteValues,
  countScaleBytes,
  hasByteScales,
  histogram,
  readScaleBytes,
} from "../../stored/byte-scales.js";
import { conventionOf } from "../../stored/conventions.js";
import { type GlobalScale, readBlockScales, readGlobal, readScales, scaleOf } from "../../stored/scales.js";
import { matricesOf, type QuantizedWeight } from "../../stored/weight.js";
import type { Target } from "../targets/table.js";
import type { OutputTensors } from "../targets/tensors.js";
import { encodeScales } from "./encode.js";

/** The largest exponent of e4m3. */
const MAX_POWER = 8;

/** The least exponent of normal f32. */
const MIN_POWER = -126;

/** The global scale, as a factor or a divisor of all block scales. */
type Global = Pick<GlobalScale, "global" | "isDivisor">;

/** The scales of a weight under a target: one scale for each block or, with `index`, one scale for each byte value. */
export interface RepackedScales {
  /** The f32 scales before repacking. */
  readonly before: Float32Array;
  /** The f32 scales after repacking; `before` itself if no value changes. */
  readonly after: Float32Array;
  /** The scales in the type of the target. */
  readonly bytes: Uint8Array;
  /** The global scales: one per tensor, or one per matrix; empty if the target has none. */
  readonly globals: readonly number[];
  /** The byte of each block, which indexes the other arrays; absent if the other arrays have one scale for each block. */
  readonly index?: KernelBuffer;
  /**
   * The old and the new global scale. Set only if the global scale changes, block scales do not, and block scales have one byte.
   */
  readonly rescaling?: Rescaling;
}

/** The replacement of a global scale. Block scales stay the same. */
export interface Rescaling {
  readonly before: Global;
  readonly after: Global;
}

/**
 * Block scales, and the number of blocks with each scale. With `index`, there is one scale for each byte value, else one scale
 * for each block.
 */
interface Blocks {
  readonly values: Float32Array;
  readonly counts: Float64Array;
  readonly index?: KernelBuffer;
}

/**
 * The weight's scale for each block of the target. One-byte scales are tabulated by byte; bytes that do not occur have the scale
 * 0.
 */
async function blocksOf(kernels: Kernels, weight: QuantizedWeight, outputs: OutputTensors): Promise<Blocks> {
  if (!hasByteScales(weight)) {
    const { values: storedScales } = await readScales(weight);
    const values = scalesOfTargetBlocks(
      weight,
      outputs,
      storedScales,
      new Float32Array(blockCount(weight, outputs)),
    );
    return { values, counts: new Float64Array(values.length).fill(1) };
  }
  const storedScales = await readScaleBytes(kernels, weight);
  const index = hasSameGrid(weight, outputs)
    ? storedScales
    : kernels.buffer("spread scales", blockCount(weight, outputs));
  if (index !== storedScales) scalesOfTargetBlocks(weight, outputs, storedScales.bytes, index.bytes);
  const counts =
    index === storedScales ? countScaleBytes(kernels, weight, storedScales) : histogram(kernels, index);
  const values = byteValues(weight).map((value, byte) => (counts[byte] === 0 ? 0 : value));
  return { values, counts, index };
}

/**
 * The scales of a weight under a target; undefined if codes or scales cannot be repacked without rounding. Reads all scales. The
 * result is valid until the next call.
 */
export async function repackScales(
  kernels: Kernels,
  weight: QuantizedWeight,
  target: Target,
  outputs: OutputTensors,
): Promise<RepackedScales | undefined> {
  if (weight.unpacked?.width === 2 || weight.factors) return undefined;
  if (weight.type !== outputs.type || !isNested(weight, outputs)) return undefined;
  const globalScale = await readGlobal(weight);
  if (globalScale.storedGlobals && outputs.globals > 1)
    return repackStack(weight, target, outputs, globalScale);
  const { values: blocks, counts, index } = await blocksOf(kernels, weight, outputs);
  const indexOption = index ? { index } : {};
  const occurs = (i: number): boolean => counts[i] !== 0;
  const before = blocks.map((value, i) => (occurs(i) ? scaleOf(globalScale, value) : 0));
  if (!before.every((value) => Number.isFinite(value) && value >= 0)) return undefined;
  const encode = (values: Float32Array): Uint8Array | undefined => {
    const firstScale = values.find((_, i) => occurs(i)) ?? 0;
    if (
      needsPowersOfTwo(target) &&
      !encodeScales(
        "F8_E8M0",
        values.map((value, i) => (occurs(i) ? value : firstScale)),
      )
    )
      return undefined;
    const bytes = encodeScales(
      outputs.scale.dtype,
      values.map((value, i) => (occurs(i) ? value : firstScale)),
    );
    // unused entries map to themselves, so that `expanded` recognizes an unchanged table
    return bytes?.length === BYTES.length && index ? bytes.map((byte, i) => (occurs(i) ? byte : i)) : bytes;
  };
  if (!outputs.global) {
    const bytes = encode(before);
    return bytes && { before, after: before, bytes, globals: [], ...indexOption };
  }
  const isDivisor = conventionOf(target.convention).global?.role === "divisor";
  const isNew = globalScale.storedGlobal === undefined;
  const choices = isNew
    ? candidateGlobalScales(before).map((factor) => ({
        global: isDivisor ? 1 / factor : factor,
        values: before.map((value) => value / factor),
      }))
    : [
        {
          global: nearestGlobalScale({ values: blocks, counts }, before, globalScale, isDivisor),
          values: blocks,
        },
      ];
  for (const { global, values } of choices) {
    const bytes = encode(values);
    if (!bytes || !Number.isFinite(global)) continue;
    const after = values.map((value, i) => (occurs(i) ? scaleOf({ global, isDivisor }, value) : 0));
    const isSame = equalValues(before, after);
    if (isNew && !isSame) continue;
    const globals = new Array<number>(outputs.globals).fill(global);
    const changed =
      index && !isSame ? { rescaling: { before: globalOf(globalScale), after: { global, isDivisor } } } : {};
    return { before, after: isSame ? before : after, bytes, globals, ...indexOption, ...changed };
  }
  return undefined;
}

const globalOf = ({ global, isDivisor }: Global): Global => ({ global, isDivisor });

/** Whether the target's configuration declares power-of-two scales, regardless of the type of the scales. */
const needsPowersOfTwo = ({ declaration }: Target): boolean =>
  declaration.method === "fp8" && declaration.scaleFormat === "ue8m0";

/** As `repackScales`, if both the weight and the target have one global scale per matrix. */
async function repackStack(
  weight: QuantizedWeight,
  target: Target,
  outputs: OutputTensors,
  { storedGlobals, isDivisor }: GlobalScale,
): Promise<RepackedScales | undefined> {
  const targetIsDivisor = conventionOf(target.convention).global?.role === "divisor";
  if (outputs.globals !== storedGlobals?.length || isDivisor !== targetIsDivisor) return undefined;
  const ofBlocks = (values: Float32Array): Float32Array =>
    scalesOfTargetBlocks(weight, outputs, values, new Float32Array(blockCount(weight, outputs)));
  const before = ofBlocks((await readScales(weight)).values);
  const bytes = encodeScales(outputs.scale.dtype, ofBlocks((await readBlockScales(weight)).values));
  const isSound = before.every((value) => Number.isFinite(value) && value >= 0);
  return bytes && isSound ? { before, after: before, bytes, globals: [...storedGlobals] } : undefined;
}

/**
 * Candidate global scales under which block scales fit e4m3. The first is 1. The second is 2^-8 times the largest scale, rounded
 * down to a power of two. It is at least 2^-126, so that its reciprocal is finite.
 */
function candidateGlobalScales(scales: Float32Array): readonly number[] {
  const largest = scales.reduce((max, value) => Math.max(max, value), 0);
  return largest === 0 ? [1] : [1, 2 ** Math.max(Math.floor(Math.log2(largest)) - MAX_POWER, MIN_POWER)];
}

const equalValues = (a: Float32Array, b: Float32Array): boolean => a.every((value, i) => value === b[i]);

/** Whether each block of the target lies within one block of the weight. */
function isNested({ geometry, shape }: QuantizedWeight, { blocks }: OutputTensors): boolean {
  const [, ...sizes] = matricesOf(shape);
  if (blocks.kind === "whole" && (geometry.kind !== "whole" || shape.length > 2)) return false;
  return sizes.every((size, axis) => {
    const [blockSize = 1, targetSize = 1] = [geometry.block[axis], blocks.size[axis]];
    return blockSize >= size || blockSize % targetSize === 0;
  });
}

/** Whether the target and the weight have the same blocks. */
function hasSameGrid({ geometry, shape }: QuantizedWeight, { blocks }: OutputTensors): boolean {
  const [, ...sizes] = matricesOf(shape);
  return sizes.every((size, axis) => {
    const [blockSize = 1, targetSize = 1] = [geometry.block[axis], blocks.size[axis]];
    return (
      geometry.grid[axis] === blocks.grid[axis] && Math.min(blockSize, size) === Math.min(targetSize, size)
    );
  });
}

/** The number of blocks of the target. */
function blockCount({ shape }: QuantizedWeight, { blocks }: OutputTensors): number {
  return matricesOf(shape)[0] * blocks.grid[0] * blocks.grid[1];
}

/** Writes to `targetScales`, for each block of the target, the scale of the weight's block that contains it. */
function scalesOfTargetBlocks<T extends Float32Array | Uint8Array>(
  { geometry, shape }: QuantizedWeight,
  { blocks }: OutputTensors,
  values: T,
  targetScales: T,
): T {
  const [matrices] = matricesOf(shape);
  const [rows, columns] = blocks.grid;
  const [[height, width], grid] = [blocks.size, geometry.grid];
  const [ownHeight, ownWidth] = geometry.block;
  for (let matrix = 0, targetBlock = 0; matrix < matrices; matrix++)
    for (let row = 0; row < rows; row++) {
      const line = geometry.kind === "whole" ? 0 : matrix * grid[0] + Math.floor((row * height) / ownHeight);
      for (let column = 0; column < columns; column++, targetBlock++)
        targetScales[targetBlock] =
          values[line * grid[1] + Math.floor((column * width) / ownWidth)] ?? Number.NaN;
    }
  return targetScales;
}

const WORD = new Uint32Array(1);
const FLOAT = new Float32Array(WORD.buffer);

function adjacentF32(value: number, step: number): number {
  FLOAT[0] = value;
  WORD[0] = (WORD[0] as number) + step;
  return FLOAT[0] as number;
}

/**
 * The global scale for the opposite role (divisor or multiplier) that changes the fewest scales. Candidates are the rounded
 * reciprocal and its two neighbours. If the reciprocal is infinite, it is the result. A candidate that makes a scale infinite is
 * never chosen: the neighbour that lowers the scales lowers them by more than the rounding error of the reciprocal.
 */
function nearestGlobalScale(
  { values, counts }: Pick<Blocks, "values" | "counts">,
  before: Float32Array,
  globalScale: Global,
  isDivisor: boolean,
): number {
  if (globalScale.isDivisor === isDivisor) return globalScale.global;
  const reciprocal = Math.fround(1 / globalScale.global);
  if (!Number.isFinite(reciprocal)) return reciprocal;
  const changesOf = (global: number): number =>
    values.reduce((sum, value, i) => {
      const after = scaleOf({ global, isDivisor }, value);
      if (counts[i] === 0 || after === before[i]) return sum;
      return Number.isFinite(after) ? sum + (counts[i] as number) : Number.POSITIVE_INFINITY;
    }, 0);
  const candidates = [0, -1, 1].map((step) => adjacentF32(reciprocal, step));
  const candidateChanges = candidates.map((global) => ({ global, changes: changesOf(global) }));
  return candidateChanges.reduce((best, each) => (each.changes < best.changes ? each : best)).global;
}
