/** Converts weights to the elementwise form: one element for each code, and one scale for each block of columns. */
import { elementCount } from "../../tensor/shape.js";
import { type Finding, finding } from "../judge/findings.js";
import { CODE_TYPES, type CodeTypeName } from "./code-types.js";
import { conventionOf } from "./conventions.js";
import { ExpandedScales } from "./expanded-scales.js";
import { type Change, unpackColumn, unpackedTensor } from "./packing.js";
import type { PackingName } from "./packing-names.js";
import type { StoredTensor } from "./tensors.js";
import { matricesOf, type QuantizedWeight } from "./weight.js";

/** An elementwise weight, and findings about its zero points and its group indices. */
export interface ElementwiseWeight<W extends QuantizedWeight> {
  readonly weight: W;
  readonly findings: readonly Finding[];
}

/**
 * Returns the weight with one element for each code and with zero points subtracted. If groups are not consecutive columns, each
 * column gets its own scale. A weight that is already elementwise is returned unchanged. Reads zero points and group indices.
 */
export async function toElementwise<W extends QuantizedWeight>(weight: W): Promise<ElementwiseWeight<W>> {
  const { zeros, order, codes, scale, shape, type } = weight;
  const isInteger = type.startsWith("int");
  if (zeros && !isInteger) return { weight, findings: await zeroOnly(weight, zeros) };
  const groups = order && (await groupsOf(weight, order));
  if (typeof groups === "string")
    return { weight, findings: [finding("companion-shape", weight.name, groups)] };
  const points = zeros !== undefined && (await zeroPoints(weight, zeros)) !== undefined;
  const packing = conventionOf(weight.convention).codes.packing ?? "bytes";
  if (isElementwise(weight) && !points && !groups) return { weight, findings: [] };
  const { bits } = CODE_TYPES[type];
  const result = points ? differences(bits) : type;
  const width = CODE_TYPES[result].bits > 8 ? 2 : 1;
  const value = valueIn(packing, type);
  const encode = encoderOf(result);
  const differ = zeroPointLookup(weight, groups);
  const identity = (code: number): number => code;
  const change = async (): Promise<Change> => {
    if (!isInteger) return identity;
    const values = points && zeros ? await cacheLast(zeros, () => zeroPoints(weight, zeros)) : undefined;
    if (!values) return (code) => encode(value(code));
    return (code, matrix, row, column) => encode(value(code) - differ(values, matrix, row, column));
  };
  const view = unpackedTensor(codes, { packing, bits, shape, width, change });
  const from = [codes, scale, ...(zeros ? [zeros] : []), ...(order ? [order] : [])];
  const scales = groups ? ExpandedScales.of(weight, groups) : {};
  return {
    weight: {
      ...weight,
      codes: view,
      type: result,
      ...scales,
      unpacked: { width, from, type, scaleDType: scale.entry.dtype, differences: points },
    },
    findings: [],
  };
}

/** Returns a function that looks up the zero point of an element. */
function zeroPointLookup(
  { geometry: { kind, grid, block }, shape }: QuantizedWeight,
  groups: Int32Array | undefined,
): (points: Int32Array, matrix: number, row: number, column: number) => number {
  const [, rows] = matricesOf(shape);
  return (points, matrix, row, column) => {
    const group = groups ? (groups[column] as number) : Math.floor(column / block[1]);
    const line = kind === "whole" ? 0 : matrix * rows + row;
    return points[line * grid[1] + group] as number;
  };
}

let last: { readonly zeros: StoredTensor; readonly points: Promise<Int32Array | undefined> } | undefined;

/** Caches the most recently read zero points, so that memory holds the zero points of only one weight. */
function cacheLast(
  zeros: StoredTensor,
  read: () => Promise<Int32Array | undefined>,
): Promise<Int32Array | undefined> {
  if (last?.zeros !== zeros) last = { zeros, points: read() };
  return last.points;
}

/** Whether a weight has one code for each element, in row-major order and in the width of the code type. */
export function isElementwise({ convention, type, shape }: QuantizedWeight): boolean {
  const { packing = "bytes" } = conventionOf(convention).codes;
  if (packing === "words") return CODE_TYPES[type].bits === 4 && (shape.at(-1) ?? 0) % 8 === 0;
  return packing === "bytes";
}

/** The type of differences between `bits`-bit integers and their zero points. */
function differences(bits: number): CodeTypeName {
  const name = `int${bits + 1}`;
  return (Object.keys(CODE_TYPES) as CodeTypeName[]).find((each) => each === name) ?? "int9";
}

/** Returns a function from a packed code to its integer. */
function valueIn(packing: PackingName, type: CodeTypeName): (code: number) => number {
  const half = 2 ** (CODE_TYPES[type].bits - 1);
  return packing === "bytes" ? (code) => (code < half ? code : code - 2 * half) : (code) => code - half;
}

/**
 * Returns a function from an integer to its code: two's complement if code 0 has the value 0, else the offset from the smallest
 * value.
 */
function encoderOf(type: CodeTypeName): (value: number) => number {
  const { bits, values } = CODE_TYPES[type];
  const firstValue = values[0] as number;
  return (value) => (value - firstValue) & (2 ** bits - 1);
}

async function bytesOf({ shard, entry }: StoredTensor): Promise<Uint8Array> {
  return shard.read(entry);
}

/** A finding if floating-point codes have zero points other than 0. */
async function zeroOnly({ name }: QuantizedWeight, zeros: StoredTensor): Promise<Finding[]> {
  const bytes = await bytesOf(zeros);
  if (bytes.every((byte) => (byte & 0x7f) === 0)) return [];
  return [finding("zero-point", name, `${zeros.entry.name} is not 0, and codes are floating-point`)];
}

/** The zero point of each scale; undefined if all are 0. */
async function zeroPoints(weight: QuantizedWeight, zeros: StoredTensor): Promise<Int32Array | undefined> {
  const bytes = await bytesOf(zeros);
  const { bits } = CODE_TYPES[weight.type];
  const [matrices, rows] = matricesOf(weight.shape);
  const [lines, columns] = weight.geometry.grid;
  let points: Int32Array;
  if (conventionOf(weight.convention).zeros?.packed) {
    const step = bytes.length / Math.max(1, matrices);
    points = new Int32Array(matrices * rows * columns);
    for (let matrix = 0; matrix < matrices; matrix++)
      points.set(
        unpackColumn(bytes.subarray(matrix * step, (matrix + 1) * step), { rows, columns, bits }),
        matrix * rows * columns,
      );
  } else points = Int32Array.from(new Int8Array(bytes.buffer, bytes.byteOffset, bytes.length));
  if (points.length < lines * columns) return undefined;
  return points.some((point) => point !== 0) ? points : undefined;
}

/**
 * Returns the group index of each column. Returns the reason as a string if the indices do not fit. Undefined if groups are
 * consecutive columns or the indices are unset.
 */
async function groupsOf(
  { shape, geometry }: QuantizedWeight,
  order: StoredTensor,
): Promise<Int32Array | string | undefined> {
  const columns = shape.at(-1) ?? 0;
  const { name, dtype, shape: orderShape } = order.entry;
  if (dtype !== "I32" || elementCount(orderShape) !== columns)
    return `${name} is ${dtype} [${orderShape}]; I32 [${columns}] is needed, the group of each column`;
  const bytes = (await bytesOf(order)).slice();
  const groups = new Int32Array(bytes.buffer, 0, columns);
  if (groups.every((group) => group === -1)) return undefined;
  const [, width] = geometry.block;
  if (groups.every((group, column) => group === Math.floor(column / width))) return undefined;
  const [, count] = geometry.grid;
  const invalidIndex = groups.findIndex((group) => group < 0 || group >= count);
  if (invalidIndex >= 0)
    return `${name} says group ${groups[invalidIndex]} of column ${invalidIndex}; there are ${count} groups`;
  return groups;
}
