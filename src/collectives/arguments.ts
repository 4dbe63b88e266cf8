/** Checks of the arguments of a group's operations, and allocation of their results. */
import { ArgumentError, DTypeError, ShapeError } from "../errors.js";
import { requireShape } from "../ops/execute.js";
import { describe, integer } from "../options.js";
import { requireTensor } from "../tensor/require.js";
import { type DType, elementCount, type Shape, storageBits } from "../tensor/shape.js";
import { isOverlap } from "../tensor/storage.js";
import { Tensor } from "../tensor/tensor.js";
import type { Communicator } from "./communicator.js";

type Group = Pick<Communicator, "backend" | "rank" | "ranks">;

/** Returns `x` if it is a tensor on the group's backend. */
export function requireOn({ backend }: Group, caller: string, name: string, x: unknown): Tensor {
  const tensor = requireTensor(caller, name, x);
  if (tensor.backend === backend) return tensor;
  throw new ArgumentError(
    `${caller}: ${name} does not live on the group's backend; move it by data() and tensor(group.backend, ...)`,
  );
}

/** Throws `ArgumentError` if `value` is not a rank of the group. If `mustDiffer` is set, also throws for this rank itself. */
export function requireRank(
  { rank, ranks }: Group,
  caller: string,
  name: string,
  value: unknown,
  mustDiffer = false,
): void {
  integer(0, ranks.length - 1)(caller, name, value);
  if (mustDiffer && value === rank)
    throw new ArgumentError(`${caller}: ${name} is ${describe(value)}, this rank itself; give another`);
}

/** The number of rows of a tensor (its first dimension), and the number of elements per row. */
export function rowsOf(caller: string, { shape }: Tensor): readonly [rows: number, unit: number] {
  const [rows, ...otherSizes] = shape;
  if (rows === undefined)
    throw new ShapeError(
      `${caller}: x is a scalar, []; it is divided along its first dimension, so reshape it to [1]`,
    );
  return [rows, elementCount(otherSizes)];
}

/**
 * The number of elements in the rows of x that each rank has, sends or receives. Throws `ShapeError` if the elements of a rank
 * are not a multiple of 8 bits, for example an odd number of 4-bit codes.
 */
export function elementsOf(
  caller: string,
  name: string,
  x: Tensor,
  rows: readonly number[],
): readonly number[] {
  const [, unit] = rowsOf(caller, x);
  const rank = rows.findIndex((count) => (count * unit * storageBits(x.dtype)) % 8 !== 0);
  if (rank < 0) return rows.map((count) => count * unit);
  throw new ShapeError(
    `${caller}: ${name} is [${rows}]; the ${rows[rank]} elements of rank ${rank} are not a whole number of bytes, because codes of ${x.dtype} share bytes; give even numbers`,
  );
}

/** Throws `ShapeError` unless there is one count for each rank. */
export function requireCounts(
  { ranks }: Group,
  caller: string,
  name: string,
  counts: readonly number[],
): readonly number[] {
  if (counts.length === ranks.length) return [...counts];
  throw new ShapeError(`${caller}: ${name} has ${counts.length} counts; the group has ${ranks.length} ranks`);
}

/** Returns the number of rows of each rank: the requested numbers, or an even division. */
export function rowsPerRank(
  group: Group,
  caller: string,
  name: string,
  requestedRows: readonly number[] | undefined,
  rows: number,
): readonly number[] {
  const { length: size } = group.ranks;
  if (requestedRows !== undefined) {
    const counts = requireCounts(group, caller, name, requestedRows);
    if (sum(counts) === rows) return counts;
    throw new ShapeError(`${caller}: ${name} is [${counts}], ${sum(counts)} in all; x has ${rows} rows`);
  }
  if (rows % size === 0) return group.ranks.map(() => rows / size);
  throw new ShapeError(
    `${caller}: the first dimension ${rows} is not divisible among ${size} ranks; say by ${name} how many rows each has`,
  );
}

/** Throws `ArgumentError` if two tensors share memory. If `out` may be x itself, identical tensors are allowed. */
function requireApart(caller: string, x: Tensor, out: Tensor, inPlace: boolean): void {
  const [begin, end] = [x.address, x.address + x.byteLength];
  const [first, last] = [out.address, out.address + out.byteLength];
  if (!isOverlap(begin, end, first, last) || (inPlace && begin === first && end === last)) return;
  throw new ArgumentError(
    `${caller}: out shares memory with x${inPlace ? " and is not that tensor, element for element" : ", which is read while it is written"}; give another tensor`,
  );
}

/**
 * Returns `out` if it is set and has the right type and shape, else a new tensor of the type of x. With `inPlace`, `out` may be x
 * itself.
 */
export function resultOf<D extends DType>(
  group: Group,
  caller: string,
  x: Tensor<D>,
  shape: Shape,
  out: Tensor | undefined,
  inPlace = false,
): Tensor<D> {
  requireOn(group, caller, "x", x);
  if (out === undefined) return new Tensor(group.backend, x.dtype, shape);
  requireOn(group, caller, "out", out);
  if (out.dtype !== x.dtype)
    throw new DTypeError(`${caller}: out is ${out.dtype}; it must be ${x.dtype}, as x is`);
  requireShape(caller, "out", out, shape);
  requireApart(caller, x, out, inPlace);
  return out as Tensor<D>;
}

export function sum(counts: readonly number[]): number {
  return counts.reduce((total, each) => total + each, 0);
}

/** The offset of each tensor in a concatenation of tensors of these sizes. */
export function offsetsOf(counts: readonly number[]): readonly number[] {
  let offset = 0;
  return counts.map((count) => {
    offset += count;
    return offset - count;
  });
}
