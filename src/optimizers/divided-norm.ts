/**
 * The sums of squares of gradients that are divided among ranks: those of the whole gradients, added in the order of one process
 * (numerics.md §9.3). Pieces are those of the whole. Ranks that have parts of one piece put their elements side by side.
 */
import type { ProcessGroup } from "../collectives/group.js";
import { zeros } from "../ops/create.js";
import { PIECE, pieceSums, sumPieces } from "../ops/update/grad-norm.js";
import type { Range } from "../tensor/part.js";
import { Scope } from "../tensor/scope.js";
import type { WideDType } from "../tensor/shape.js";
import { Tensor, VIEW_ALIGNMENT, viewOrSlice } from "../tensor/tensor.js";

/** A gradient of which this rank has some elements. */
export interface DividedGrad {
  readonly grad: Tensor<WideDType>;
  /** The ranks that have parts of it: those of a group or, of two groups, each of one with each of the other. */
  readonly groups: readonly ProcessGroup[];
  /** The number of elements of the whole. */
  readonly size: number;
  /** The elements of the whole that this rank has, in the order in which `grad` has them. */
  readonly own: readonly Range[];
  /** Where the elements of any rank end. */
  readonly ends: readonly number[];
}

/** Elements of the whole, from `begin` to before `end`, and where the first of them is in this rank's part. */
interface Run {
  readonly begin: number;
  readonly end: number;
  readonly at: number;
}

/** Where a gradient lies among those of the groups. */
interface Place {
  readonly grad: Tensor<WideDType>;
  readonly size: number;
  readonly runs: readonly Run[];
  /** The number of pieces of the whole. */
  readonly pieces: number;
  /** Pieces of which several ranks may have parts. */
  readonly shared: readonly number[];
  /** Where its sums begin among those of all gradients. */
  readonly first: number;
}

/** f32 elements between which views begin. */
const ALIGNED = VIEW_ALIGNMENT / 4;

const upTo = (count: number, step: number): number => Math.ceil(count / step) * step;

function runsOf(own: readonly Range[]): readonly Run[] {
  let next = 0;
  return own.map(([begin, end]) => {
    next += end - begin;
    return { begin, end, at: next - (end - begin) };
  });
}

function placesOf(grads: readonly DividedGrad[]): readonly Place[] {
  let first = 0;
  return grads.map(({ grad, size, own, ends }) => {
    const pieces = Math.ceil(size / PIECE);
    const inside = ends.filter((end) => end % PIECE !== 0 && end < size);
    const shared = [...new Set(inside.map((end) => Math.floor(end / PIECE)))];
    const place = { grad, size, runs: runsOf(own), pieces, shared, first };
    first += upTo(pieces, ALIGNED);
    return place;
  });
}

/** Elements of a run, by their numbers in the whole. */
function elementsOf(grad: Tensor<WideDType>, run: Run, begin: number, end: number): Tensor<WideDType> {
  return viewOrSlice(grad, run.at + begin - run.begin, [end - begin]);
}

/**
 * The sums of the squares of whole gradients, f32 [gradients]. All of them are divided among the ranks of the same groups, whose
 * ranks all call it with theirs.
 */
export function dividedSquareSums(grads: readonly DividedGrad[]): Tensor<"f32"> {
  using scope = new Scope();
  const places = placesOf(grads);
  const [{ grad, groups }] = grads as [DividedGrad];
  const { backend } = grad;
  const last = places.at(-1) as Place;
  const sums = zeros(backend, "f32", [last.first + upTo(last.pieces, ALIGNED)]);
  for (const place of places) ownPieces(place, sums);
  for (const dtype of new Set(grads.map(({ grad }) => grad.dtype)))
    sharedPieces(
      groups,
      places.filter(({ grad, shared }) => grad.dtype === dtype && shared.length > 0),
      sums,
    );
  // what this rank did not sum is +0, which changes no sum
  for (const group of groups) group.allReduce(sums, { out: sums });
  const out = new Tensor(backend, "f32", [grads.length]);
  for (const [i, { first, pieces }] of places.entries()) out.paste(sumPieces(sums.view(first, [pieces])), i);
  return scope.keep(out);
}

/** Sums the pieces that one run of this rank has all elements of. */
function ownPieces({ grad, size, runs, first }: Place, sums: Tensor<"f32">): void {
  for (const run of runs) {
    const begin = upTo(run.begin, PIECE);
    const end = run.end === size ? size : run.end - (run.end % PIECE);
    if (begin < end) sums.paste(pieceSums(elementsOf(grad, run, begin, end)), first + begin / PIECE);
  }
}

/** Puts the pieces that ranks share side by side; the rank that has the first element of one adds its sum. */
function sharedPieces(groups: readonly ProcessGroup[], places: readonly Place[], sums: Tensor<"f32">): void {
  if (places.length === 0) return;
  const [{ grad }] = places as [Place];
  const slots = places.flatMap((place) => place.shared.map((piece) => ({ place, piece })));
  const all = zeros(grad.backend, grad.dtype, [slots.length * PIECE]);
  for (const [slot, { place, piece }] of slots.entries())
    for (const run of place.runs) {
      const begin = Math.max(run.begin, piece * PIECE);
      const end = Math.min(run.end, (piece + 1) * PIECE);
      if (begin < end) all.paste(elementsOf(place.grad, run, begin, end), (slot - piece) * PIECE + begin);
    }
  // x + 0 is x, but for the sign of a zero, whose square is the same
  for (const group of groups) group.allReduce(all, { out: all });
  const made = pieceSums(all);
  const begins = ({ runs }: Place, piece: number): boolean =>
    runs.some(({ begin, end }) => begin <= piece * PIECE && piece * PIECE < end);
  for (const [slot, { place, piece }] of slots.entries())
    if (begins(place, piece)) sums.paste(made.view(slot, [1]), place.first + piece);
}
