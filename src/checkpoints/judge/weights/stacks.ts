/** The matrices of a stack, each by itself: one that is dead among others is seen by no statistics of the whole. */

import type { ByteScales } from "../../stored/byte-scales.js";
import { CODE_TYPES } from "../../stored/code-types.js";
import type { Scales } from "../../stored/scales.js";
import { matricesOf, type QuantizedWeight } from "../../stored/weight.js";
import { type Finding, finding } from "../findings.js";

/** The bytes that are read at a time. The first ones tell of most matrices. */
const FIRST_BYTES = 1 << 12;
const CHUNK_BYTES = 1 << 20;
/** Fewer scales that are equal say nothing. */
const MIN_SCALES = 16;

/** Findings about matrices whose codes are all zero, or whose scales are all one, where those of others are not. */
export async function judgeStack(weight: QuantizedWeight, scales: Scales | ByteScales): Promise<Finding[]> {
  const [matrices, rows, columns] = matricesOf(weight.shape);
  if (matrices < 2 || rows * columns === 0) return [];
  const dead: number[] = [];
  for (let matrix = 0; matrix < matrices; matrix++) if (await isZero(weight, matrix)) dead.push(matrix);
  const constant = constantScales(weight, scales);
  const among = (list: readonly number[], what: string): Finding[] =>
    list.length === 0 || list.length === matrices
      ? []
      : [
          finding(
            "matrix-dead",
            weight.name,
            `${what} of ${told(list)} of ${matrices}, and not those of others`,
          ),
        ];
  return [
    ...among(dead, "all codes are zero"),
    ...among(
      constant.filter((matrix) => !dead.includes(matrix)),
      "all scales are 0 or 1",
    ),
  ];
}

function told(list: readonly number[]): string {
  const some = list.slice(0, 8).join(", ");
  return `${list.length > 1 ? "matrices" : "matrix"} ${some}${list.length > 8 ? ", …" : ""}`;
}

/** Whether all codes of a matrix stand for zero. Reads no more than tells. */
async function isZero(
  { codes: { shard, entry }, type, unpacked, shape }: QuantizedWeight,
  matrix: number,
): Promise<boolean> {
  const size = (entry.end - entry.begin) / matricesOf(shape)[0];
  const isZeroByte = zeroBytes(type, unpacked !== undefined);
  if (!isZeroByte) return false;
  for (let at = 0; at < size; ) {
    const end = Math.min(size, at + (at === 0 ? FIRST_BYTES : CHUNK_BYTES));
    const bytes = await shard.read(entry, matrix * size + at, matrix * size + end);
    if (!bytes.every((byte) => isZeroByte[byte] === 1)) return false;
    at = end;
  }
  return true;
}

/** For each byte, 1 if its codes stand for zero; undefined for codes that do not end with a byte. */
function zeroBytes(type: QuantizedWeight["type"], isUnpacked: boolean): Uint8Array | undefined {
  const { values, bits } = CODE_TYPES[type];
  const isZeroCode = (code: number): boolean => values[code] === 0;
  if (bits > 8) return undefined;
  if (isUnpacked || bits === 8)
    return Uint8Array.from({ length: 256 }, (_, byte) => Number(isZeroCode(byte)));
  if (bits === 4)
    return Uint8Array.from({ length: 256 }, (_, byte) =>
      Number(isZeroCode(byte & 15) && isZeroCode(byte >> 4)),
    );
  return Uint8Array.from({ length: 256 }, (_, byte) => Number(byte === 0));
}

/** The matrices whose scales are all 0 or all 1. */
function constantScales({ shape, geometry }: QuantizedWeight, scales: Scales | ByteScales): number[] {
  const [matrices] = matricesOf(shape);
  const step = ("bytes" in scales ? scales.bytes.bytes : scales.values).length / matrices;
  if (geometry.kind === "whole" || !Number.isInteger(step) || step < MIN_SCALES) return [];
  return Array.from({ length: matrices }, (_, matrix) => matrix).filter((matrix) => {
    const own = scalesOf(scales, matrix, step);
    const [first] = own;
    return (first === 0 || first === 1) && own.every((value) => value === first);
  });
}

/** The scales of a matrix; of bytes, those that occur. */
function scalesOf(scales: Scales | ByteScales, matrix: number, step: number): Float32Array {
  const [begin, end] = [matrix * step, (matrix + 1) * step];
  if (!("bytes" in scales)) return scales.values.subarray(begin, end);
  const values = scales.valuesOf(matrix);
  const occurring = new Set(scales.bytes.bytes.subarray(begin, end));
  return Float32Array.from(occurring, (byte) => values[byte] as number);
}
