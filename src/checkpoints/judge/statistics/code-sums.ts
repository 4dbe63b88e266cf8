/** One pass over the codes of a weight: sums over blocks, and counts of codes. */
import { elementCount } from "../../../tensor/shape.js";
import type { Kernels } from "../../kernels/kernels.js";
import {
  byteMagnitudes,
  integerMagnitudes,
  nibbleLogarithms,
  nibbleMagnitudes,
} from "../../kernels/magnitudes.js";
import type { ByteScales } from "../../stored/byte-scales.js";
import { codeRows, packedRows } from "../../stored/code-rows.js";
import { CODE_TYPES, type CodeTypeName } from "../../stored/code-types.js";
import type { Scales } from "../../stored/scales.js";
import { matricesOf, type QuantizedWeight } from "../../stored/weight.js";
import { CodeCounts } from "./code-counts.js";
import { ScaleEntries, type ScaleTally } from "./scale-entries.js";
import { addScaleSums } from "./scale-sums.js";
import { SUM } from "./sum-indices.js";

/** The group sizes for which a kernel sums 4-bit codes with one-byte scales. */
const NIBBLES: readonly number[] = [16, 32];

/** The maximum group size at which the sum of squares of 4-bit codes fits the kernel's 16 bits. */
const MAX_NIBBLES = 448;

/**
 * Receives the next stored bytes of codes. They are valid until the call returns or, if it returns a promise, until the promise
 * settles.
 */
export type OnCodes = (bytes: Uint8Array) => void | Promise<void>;

/** The result of one pass over the codes of a weight. */
export interface CodeSums {
  /** The number of occurrences of each code; 0 if codes are not counted. */
  readonly counts: Float64Array;
  /** The sums in the order of `SUM`. */
  readonly sums: Float64Array;
  readonly tallies?: readonly ScaleTally[];
}

/** Sums over the blocks of a weight, and counts its codes. */
export async function sumCodes(
  kernels: Kernels,
  weight: QuantizedWeight,
  scales: Scales | ByteScales,
  options: Partial<Pick<Pass, "onCodes" | "isUncounted">>,
): Promise<CodeSums> {
  const { values } = CODE_TYPES[weight.type];
  if (elementCount(weight.shape) === 0)
    return { counts: new Float64Array(values.length), sums: new Float64Array(SUM.count) };
  const { address, bytes } = kernels.buffer("sums", 8 * SUM.count);
  bytes.fill(0);
  const pass = { kernels, weight, scales, sums: address, onCodes: () => {}, isUncounted: false, ...options };
  const counts = isPaired(weight, scales) ? await sumPairs(pass) : await sumBytes(pass);
  return { ...counts, sums: kernels.doubles(address, SUM.count).slice() };
}

/** One pass over the codes. */
interface Pass {
  readonly kernels: Kernels;
  readonly weight: QuantizedWeight;
  readonly scales: Scales | ByteScales;
  /** The address of the sums. */
  readonly sums: number;
  readonly onCodes: OnCodes;
  /** Whether to leave the counts of codes at 0. Only for types without NaN. */
  readonly isUncounted: boolean;
}

/**
 * Whether the kernels for 4-bit codes support a weight: each byte holds two codes of one block, blocks are full groups within a
 * row, and a kernel has the group size.
 */
function isPaired(
  { type, geometry, shape, unpacked }: QuantizedWeight,
  scales: Scales | ByteScales,
): boolean {
  const [tall, wide] = geometry.block;
  const [, , columns] = matricesOf(shape);
  const isWhole = geometry.kind === "group" && tall === 1 && geometry.grid[1] * wide === columns;
  const hasKernel = "bytes" in scales ? NIBBLES.includes(wide) : wide % 16 === 0 && wide <= MAX_NIBBLES;
  return !unpacked && CODE_TYPES[type].bits === 4 && isWhole && hasKernel;
}

/** Sums codes of four bits, two in a byte. */
async function sumPairs(pass: Pass): Promise<Omit<CodeSums, "sums">> {
  const { kernels, weight, scales, sums, onCodes, isUncounted } = pass;
  const { type, geometry } = weight;
  const { values } = CODE_TYPES[type];
  const [[, wide], [height, blocks]] = [geometry.block, geometry.grid];
  const counts = new CodeCounts(kernels, 256);
  const magnitudes = nibbleMagnitudes(type);
  const scaleEntries = "bytes" in scales ? new ScaleEntries(kernels, magnitudes) : undefined;
  const drainEntries = (matrix: number): void => {
    if (!scaleEntries || !("bytes" in scales)) return;
    addScaleSums(kernels.doubles(sums, SUM.count), scaleEntries.drain(), scales, matrix);
  };
  const placed = "bytes" in scales ? scales.bytes.address : kernels.put("block scales", scales.values);
  const kind = kernels.put("magnitudes", magnitudes);
  const logarithms = scaleEntries ? kernels.put("logarithms", nibbleLogarithms(type, wide)) : 0;
  let last = 0;
  for await (const { matrix, row, rows, bytes } of packedRows(kernels, weight)) {
    // if each matrix has a global scale, the same scale byte means another scale in each matrix
    if (scales.storedGlobals && matrix !== last) drainEntries(last);
    last = matrix;
    if (!isUncounted) counts.add(bytes.address, bytes.bytes.length);
    const first = (matrix * height + row) * blocks;
    const shared = { codes: bytes.address, rows, wide, blocks, kind, sums };
    if (scaleEntries)
      kernels.call("nibbleBlocks", {
        ...shared,
        scales: placed + first,
        table: scaleEntries.table,
        logarithms,
      });
    else
      kernels.call("nibbleStatistics", {
        ...shared,
        scales: placed + 4 * first,
        global: scales.global,
        divides: Number(scales.isDivisor),
      });
    await onCodes(bytes.bytes);
  }
  drainEntries(last);
  return {
    counts: values.map((_, code) => countOfHalfByte(counts.total, code)),
    ...(scaleEntries && !scales.storedGlobals ? { tallies: scaleEntries.tallies } : {}),
  };
}

/** Sums one-byte codes. Codes of other sizes are unpacked first. */
async function sumBytes({ kernels, weight, scales, sums, onCodes }: Pass): Promise<Omit<CodeSums, "sums">> {
  const { type, geometry, shape } = weight;
  const { values, max } = CODE_TYPES[type];
  const [, height, columns] = matricesOf(shape);
  const { grid } = geometry;
  const [tall, wide] = geometry.block;
  const magnitudes = hasOffset(type) ? integerMagnitudes(max) : byteMagnitudes(type);
  const counts = new CodeCounts(kernels, values.length);
  const scaleEntries = "bytes" in scales ? new ScaleEntries(kernels, magnitudes) : undefined;
  const drainEntries = (matrix: number): void => {
    if (!scaleEntries || !("bytes" in scales)) return;
    addScaleSums(kernels.doubles(sums, SUM.count), scaleEntries.drain(), scales, matrix);
  };
  const [placed, width] =
    "bytes" in scales ? [scales.bytes.address, 1] : [kernels.put("block scales", scales.values), 4];
  const squares = kernels.buffer("block squares", 8 * grid[1]);
  const ranks = kernels.buffer("block ranks", 2 * grid[1]);
  squares.bytes.fill(0);
  ranks.bytes.fill(0);
  const kind = kernels.put("magnitudes", magnitudes);
  let last = 0;
  for await (const { matrix, row, rows, codes, stored } of codesInBytes(kernels, weight, counts)) {
    if (scales.storedGlobals && matrix !== last) drainEntries(last);
    last = matrix;
    const line = geometry.kind === "whole" ? 0 : matrix * grid[0] + Math.floor(row / tall);
    kernels.call("byteStatistics", {
      codes,
      rows,
      columns,
      row,
      height,
      tall,
      wide,
      blocks: grid[1],
      scales: placed + width * line * grid[1],
      step: geometry.kind === "whole" ? 0 : grid[1],
      global: scales.global,
      divides: Number(scales.isDivisor),
      kind,
      squares: squares.address,
      ranks: ranks.address,
      sums,
      table: scaleEntries?.table ?? 0,
    });
    await onCodes(stored);
  }
  drainEntries(last);
  return { counts: counts.total };
}

/** Whether codes are integers with an offset of half their range. */
function hasOffset(type: CodeTypeName): boolean {
  const [firstValue = 0] = CODE_TYPES[type].values;
  return firstValue < 0;
}

/** Yields rows as bytes in kernel memory: codes, or magnitudes of integers. Counts their codes. */
async function* codesInBytes(kernels: Kernels, weight: QuantizedWeight, counts: CodeCounts) {
  const { type, unpacked } = weight;
  const { bits, values } = CODE_TYPES[type];
  if (bits === 8 && !unpacked) {
    for await (const { matrix, row, rows, bytes } of packedRows(kernels, weight)) {
      counts.add(bytes.address, bytes.bytes.length);
      yield { matrix, row, rows, codes: bytes.address, stored: bytes.bytes };
    }
    return;
  }
  for await (const { matrix, row, rows, codes, bytes: storedBytes } of codeRows(weight)) {
    const { address, bytes } = kernels.buffer("codes", codes.length);
    if (hasOffset(type))
      for (let i = 0; i < codes.length; i++) bytes[i] = Math.abs(values[codes[i] as number] as number);
    else bytes.set(codes);
    counts.addEach(codes);
    yield { matrix, row, rows, codes: address, stored: storedBytes };
  }
}

/** The number of occurrences of a 4-bit code, from counts of bytes with two codes each. */
function countOfHalfByte(bytes: Float64Array, code: number): number {
  return bytes.reduce(
    (sum, count, byte) => sum + count * (Number((byte & 15) === code) + Number(byte >> 4 === code)),
    0,
  );
}
