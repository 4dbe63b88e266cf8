/**
 * The sums of squares of gradients of which ranks have rows: those of the whole gradients, added in the order of one process
 * (numerics.md §9.3). Pieces are those of the whole. Ranks that have parts of one piece put their elements side by side.
 */
import type { ProcessGroup } from "../distributed/group.js";
import { ArgumentError } from "../errors.js";
import type { Sharding } from "../modules/sharding.js";
import { zeros } from "../ops/create.js";
import { PIECE, pieceSums, sumPieces } from "../ops/update/grad-norm.js";
import { Scope } from "../tensor/scope.js";
import { elementCount, sameShape, type WideDType } from "../tensor/shape.js";
import { Tensor, VIEW_ALIGNMENT, viewOrSlice } from "../tensor/tensor.js";

/** A gradient of which this rank has rows. */
export interface ShardedGrad {
  readonly grad: Tensor<WideDType>;
  readonly sharding: Sharding;
}

/** Elements from `begin` to before `end`. */
interface Range {
  readonly begin: number;
  readonly end: number;
}

/** Where a gradient lies among those of the group. */
interface Place extends ShardedGrad {
  /** The elements of the whole that this rank has. */
  readonly own: Range;
  /** The elements of the whole. */
  readonly size: number;
  /** The number of pieces of the whole. */
  readonly pieces: number;
  /** Pieces of which several ranks have parts. */
  readonly shared: readonly number[];
  /** Where its sums begin among those of all gradients. */
  readonly first: number;
}

/** f32 elements between which views begin. */
const ALIGNED = VIEW_ALIGNMENT / 4;

const upTo = (count: number, step: number): number => Math.ceil(count / step) * step;

/** The elements of each rank. */
function rangesOf({ shape, rows }: Sharding): readonly Range[] {
  const unit = elementCount(shape.slice(1));
  let begin = 0;
  return rows.map((count) => {
    begin += count * unit;
    return { begin: begin - count * unit, end: begin };
  });
}

function placesOf(group: ProcessGroup, grads: readonly ShardedGrad[]): readonly Place[] {
  let first = 0;
  return grads.map(({ grad, sharding }) => {
    if (!sameShape(grad.shape, sharding.own.shape))
      throw new ArgumentError(
        "clipGradNorm: a gradient is that of this rank's samples alone; run the last backward pass outside of noSync",
      );
    const ranges = rangesOf(sharding);
    const size = elementCount(sharding.shape);
    const pieces = Math.ceil(size / PIECE);
    const ends = ranges.map(({ end }) => end).filter((end) => end % PIECE !== 0 && end < size);
    const shared = [...new Set(ends.map((end) => Math.floor(end / PIECE)))];
    const own = ranges[group.rank] as Range;
    const place = { grad, sharding, own, size, pieces, shared, first };
    first += upTo(pieces, ALIGNED);
    return place;
  });
}

/** Elements of a gradient, by their numbers in the whole. */
function elementsOf({ grad, own }: Place, { begin, end }: Range): Tensor<WideDType> {
  return viewOrSlice(grad, begin - own.begin, [end - begin]);
}

/** The sums of the squares of whole gradients, f32 [gradients]; all ranks of the group call it with theirs. */
export function shardedSquareSums(group: ProcessGroup, grads: readonly ShardedGrad[]): Tensor<"f32"> {
  using scope = new Scope();
  const places = placesOf(group, grads);
  const { backend } = group;
  const last = places.at(-1) as Place;
  const sums = zeros(backend, "f32", [last.first + upTo(last.pieces, ALIGNED)]);
  for (const place of places) ownPieces(place, sums);
  for (const dtype of new Set(grads.map(({ grad }) => grad.dtype)))
    sharedPieces(
      group,
      places.filter(({ grad, shared }) => grad.dtype === dtype && shared.length > 0),
      sums,
    );
  // what this rank did not sum is +0, which changes no sum
  group.allReduce(sums, { out: sums });
  const out = new Tensor(backend, "f32", [grads.length]);
  for (const [i, { first, pieces }] of places.entries()) out.paste(sumPieces(sums.view(first, [pieces])), i);
  return scope.keep(out);
}

/** Sums the pieces that this rank has all elements of. */
function ownPieces(place: Place, sums: Tensor<"f32">): void {
  const { own, size, first } = place;
  const begin = upTo(own.begin, PIECE);
  const end = own.end === size ? size : own.end - (own.end % PIECE);
  if (begin >= end) return;
  sums.paste(pieceSums(elementsOf(place, { begin, end })), first + begin / PIECE);
}

/** Puts the pieces that ranks share side by side; the rank that has the first element of one adds its sum. */
function sharedPieces(group: ProcessGroup, places: readonly Place[], sums: Tensor<"f32">): void {
  if (places.length === 0) return;
  const [{ grad }] = places as [Place];
  const slots = places.flatMap((place) => place.shared.map((piece) => ({ place, piece })));
  const all = zeros(group.backend, grad.dtype, [slots.length * PIECE]);
  const begins = ({ own }: Place, piece: number): boolean =>
    own.begin <= piece * PIECE && piece * PIECE < own.end;
  for (const [slot, { place, piece }] of slots.entries()) {
    const begin = Math.max(place.own.begin, piece * PIECE);
    const end = Math.min(place.own.end, (piece + 1) * PIECE);
    if (begin < end) all.paste(elementsOf(place, { begin, end }), (slot - piece) * PIECE + begin);
  }
  // x + 0 is x, but for the sign of a zero, whose square is the same
  const made = pieceSums(group.allReduce(all, { out: all }));
  for (const [slot, { place, piece }] of slots.entries())
    if (begins(place, piece)) sums.paste(made.view(slot, [1]), place.first + piece);
}
