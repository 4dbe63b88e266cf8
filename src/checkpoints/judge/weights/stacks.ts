/** Judges each matrix of a stack, because statistics of the entire stack do not show a single dead matrix. */

import type { ByteScales } from "../../stored/byte-scales.js";
import { CODE_TYPES } from "../../stored/code-types.js";
import type { Scales } from "../../stored/scales.js";
import { matricesOf, type QuantizedWeight } from "../../stored/weight.js";
import { type Finding, finding } from "../findings.js";

/** The bytes to read at a time. The first read is small, because it usually decides. */
const FIRST_BYTES = 1 << 12;
const CHUNK_BYTES = 1 << 20;
/** The minimum number of equal scales that counts as evidence. */
const MIN_SCALES = 16;

/**
 * Findings about matrices whose codes are all zero, or whose scales are all 0 or all 1, if other matrices of the stack differ.
 */
export async function judgeStack(weight: QuantizedWeight, scales: Scales | ByteScales): Promise<Finding[]> {
  const [matrices, rows, columns] = matricesOf(weight.shape);
  if (matrices < 2 || rows * columns === 0) return [];
  const zeroMatrices: number[] = [];
  for (let matrix = 0; matrix < matrices; matrix++)
    if (await isZero(weight, matrix)) zeroMatrices.push(matrix);
  const constant = constantScales(weight, scales);
  const findingFor = (list: readonly number[], description: string): Finding[] =>
    list.length === 0 || list.length === matrices
      ? []
      : [
          finding(
            "matrix-dead",
            weight.name,
            `${description} of ${listMatrices(list)} of ${matrices}, and not those of others`,
          ),
        ];
  return [
    ...findingFor(zeroMatrices, "all codes are zero"),
    ...findingFor(
      constant.filter((matrix) => !zeroMatrices.includes(matrix)),
      "all scales are 0 or 1",
    ),
  ];
}

function listMatrices(list: readonly number[]): string {
  const firstIndices = list.slice(0, 8).join(", ");
  return `${list.length > 1 ? "matrices" : "matrix"} ${firstIndices}${list.length > 8 ? ", …" : ""}`;
}

/** Whether all codes of a matrix are zero. Stops at the first nonzero code. */
async function isZero(
  { codes: { shard, entry }, type, unpacked, shape }: QuantizedWeight,
  matrix: number,
): Promise<boolean> {
  const size = (entry.end - entry.begin) / matricesOf(shape)[0];
  const isZeroByte = zeroBytes(type, unpacked !== undefined);
  if (!isZeroByte) return false;
  for (let offset = 0; offset < size; ) {
    const end = Math.min(size, offset + (offset === 0 ? FIRST_BYTES : CHUNK_BYTES));
    const bytes = await shard.read(entry, matrix * size + offset, matrix * size + end);
    if (!bytes.every((byte) => isZeroByte[byte] === 1)) return false;
    offset = end;
  }
  return true;
}

/** For each byte, 1 if all its codes are zero; undefined for codes wider than a byte. */
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
    const matrixScales = scalesOf(scales, matrix, step);
    const [first] = matrixScales;
    return (first === 0 || first === 1) && matrixScales.every((value) => value === first);
  });
}

/** The scales of a matrix. One-byte scales are returned without duplicates. */
function scalesOf(scales: Scales | ByteScales, matrix: number, step: number): Float32Array {
  const [begin, end] = [matrix * step, (matrix + 1) * step];
  if (!("bytes" in scales)) return scales.values.subarray(begin, end);
  const values = scales.valuesOf(matrix);
  const occurringBytes = new Set(scales.bytes.bytes.subarray(begin, end));
  return Float32Array.from(occurringBytes, (byte) => values[byte] as number);
}
