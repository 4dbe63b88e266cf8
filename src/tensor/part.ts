/** Parts of tensors, for tensors that are divided among ranks. */
import { ArgumentError } from "../errors.js";
import {
  anyListOf,
  describe,
  elementAt,
  integer,
  isArray,
  listLength,
  needed,
  optionsOf,
} from "../options.js";
import { elementCount, type Shape } from "./shape.js";

/** Elements [begin, end) along a dimension. */
export type Range = readonly [begin: number, end: number];

/** A part of a whole tensor: the elements whose index along every dimension is in one of its ranges. */
export interface TensorPart {
  /** The shape of the whole tensor. */
  readonly shape: Shape;
  /** The ranges along each dimension, in ascending order and disjoint. They are concatenated in the part. */
  readonly ranges: readonly (readonly Range[])[];
}

const lengthOf = (ranges: readonly Range[]): number =>
  ranges.reduce((length, [begin, end]) => length + end - begin, 0);

/** Returns the whole tensor as a part of itself. */
export function wholePart(shape: Shape): TensorPart {
  return { shape, ranges: shape.map((size) => [[0, size]]) };
}

/** Returns the part that has the given ranges along one dimension and everything along all others. */
export function partAlong(shape: Shape, dimension: number, ranges: readonly Range[]): TensorPart {
  return { shape, ranges: wholePart(shape).ranges.map((all, i) => (i === dimension ? ranges : all)) };
}

/** Returns the rows [begin, end) of a part, counted along its first dimension. */
export function rowsOfPart({ shape, ranges }: TensorPart, [begin, end]: Range): TensorPart {
  const [rows = [], ...others] = ranges;
  let offset = 0;
  const selected = rows.flatMap(([first, last]): readonly Range[] => {
    const from = Math.max(first, first + begin - offset);
    const to = Math.min(last, first + end - offset);
    offset += last - first;
    return from < to ? [[from, to]] : [];
  });
  return { shape, ranges: [selected, ...others] };
}

/** Returns the shape of the part as a tensor. */
export function shapeOfPart({ ranges }: TensorPart): Shape {
  return ranges.map(lengthOf);
}

/** Throws `ArgumentError` if two parts of one tensor overlap, unless they are the same part. */
export function sameOrApart(caller: string, a: TensorPart, b: TensorPart): boolean {
  if (JSON.stringify(a.ranges) === JSON.stringify(b.ranges)) return true;
  if (overlapsOf(a, b).some((each) => each.length === 0)) return false;
  throw new ArgumentError(
    `${caller}: ranks have parts ${JSON.stringify(a.ranges)} and ${JSON.stringify(b.ranges)} of [${a.shape}], which overlap and are not the same`,
  );
}

/** A range that two parts have in common along one dimension: where it begins in each part, and its length. */
export interface Overlap {
  readonly from: number;
  readonly to: number;
  readonly length: number;
}

/** Returns the ranges that two parts of one tensor have in common along each dimension. */
export function overlapsOf(from: TensorPart, to: TensorPart): readonly (readonly Overlap[])[] {
  return from.ranges.map((ranges, i) => {
    const placed = (sources: readonly Range[]) => {
      let offset = 0;
      return sources.map(([begin, end]) => {
        const range = { begin, end, at: offset };
        offset += end - begin;
        return range;
      });
    };
    const others = placed(to.ranges[i] ?? []);
    return placed(ranges).flatMap((a) =>
      others.flatMap((b) => {
        const begin = Math.max(a.begin, b.begin);
        const length = Math.min(a.end, b.end) - begin;
        return length > 0 ? [{ from: a.at + begin - a.begin, to: b.at + begin - b.begin, length }] : [];
      }),
    );
  });
}

const ranges = anyListOf((caller, name, value) => {
  const range =
    isArray(value) && listLength(value) === 2 ? [0, 1].map((i) => elementAt(caller, name, value, i)) : [];
  const [begin, end] = range;
  const isRange = Number.isSafeInteger(begin) && Number.isSafeInteger(end);
  if (isRange && 0 <= Number(begin) && Number(begin) <= Number(end)) return range;
  throw new ArgumentError(`${caller}: ${name} is ${describe(value)}; it must be [begin, end]`);
});
const checkPart = optionsOf<TensorPart>({
  shape: needed(anyListOf(integer(0))),
  ranges: needed(anyListOf(ranges)),
});

/** Throws `ArgumentError` for anything but a part of a tensor. */
export function requirePart(caller: string, name: string, value: TensorPart): TensorPart {
  const part = checkPart(caller, value, name);
  const fail = (why: string): ArgumentError =>
    new ArgumentError(
      `${caller}: ${name} has ranges ${JSON.stringify(part.ranges)} of [${part.shape}]; ${why}`,
    );
  if (part.ranges.length !== part.shape.length) throw fail("give ranges for each dimension");
  part.ranges.forEach((range, i) => {
    const ends = [0, ...range.flat(), part.shape[i] as number];
    if (ends.some((end, j) => j > 0 && end < (ends[j - 1] as number)))
      throw fail(`those of dimension ${i} must be ascending, apart and inside of it`);
  });
  return part;
}

/** Returns the number of elements of a part. */
export function sizeOfPart(part: TensorPart): number {
  return elementCount(shapeOfPart(part));
}
