/**
 * The sums of squares of gradients that are divided among ranks. The squares of a full gradient are added in the order in which a
 * single process adds them: pieces of `PIECE` elements, then the sums of the pieces (numerics.md §9.3). Pieces that several ranks
 * have parts of are assembled from these parts first.
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
  /** The ranks that have parts of the gradient: the ranks of one group, or each pair of ranks of two groups. */
  readonly groups: readonly ProcessGroup[];
  /** The number of elements of the full gradient. */
  readonly size: number;
  /** The elements of the full gradient that this rank has, in the order in which `grad` has them. */
  readonly ranges: readonly Range[];
  /** The ends of the ranges of all ranks. */
  readonly ends: readonly number[];
}

/** The elements `begin` to `end - 1` of a full gradient. */
interface ElementRun {
  readonly begin: number;
  readonly end: number;
  /** The index of element `begin` in this rank's part. */
  readonly offset: number;
}

/** How a gradient is divided into runs and pieces. */
interface GradLayout {
  readonly grad: Tensor<WideDType>;
  readonly size: number;
  readonly runs: readonly ElementRun[];
  /** The number of pieces of the full gradient. */
  readonly pieces: number;
  /** The pieces that several ranks may have parts of. */
  readonly shared: readonly number[];
  /** The index of its first piece's sum among the sums of all gradients. */
  readonly firstSum: number;
}

/** The sums of each gradient begin at a multiple of this, because views must be aligned. */
const ALIGNMENT = VIEW_ALIGNMENT / 4;

const roundUp = (count: number, multiple: number): number => Math.ceil(count / multiple) * multiple;

function elementRuns(ranges: readonly Range[]): readonly ElementRun[] {
  let offset = 0;
  return ranges.map(([begin, end]) => {
    const run = { begin, end, offset };
    offset += end - begin;
    return run;
  });
}

function gradLayouts(grads: readonly DividedGrad[]): readonly GradLayout[] {
  let firstSum = 0;
  return grads.map(({ grad, size, ranges, ends }) => {
    const pieces = Math.ceil(size / PIECE);
    const endsInPiece = ends.filter((end) => end % PIECE !== 0 && end < size);
    const sharedPieces = [...new Set(endsInPiece.map((end) => Math.floor(end / PIECE)))];
    const layout = { grad, size, runs: elementRuns(ranges), pieces, shared: sharedPieces, firstSum };
    firstSum += roundUp(pieces, ALIGNMENT);
    return layout;
  });
}

/** Returns the elements `begin` to `end - 1` of the full gradient. `run` must contain them. */
function sliceElements(
  grad: Tensor<WideDType>,
  run: ElementRun,
  begin: number,
  end: number,
): Tensor<WideDType> {
  return viewOrSlice(grad, run.offset + begin - run.begin, [end - begin]);
}

/**
 * Returns the sums of the squares of full gradients, f32 [gradients]. All of them are divided among the ranks of the same groups.
 * All of these ranks must call it.
 */
export function dividedSquareSums(grads: readonly DividedGrad[]): Tensor<"f32"> {
  using scope = new Scope();
  const layouts = gradLayouts(grads);
  const [{ grad, groups }] = grads as [DividedGrad];
  const { backend } = grad;
  const last = layouts.at(-1) as GradLayout;
  const sums = zeros(backend, "f32", [last.firstSum + roundUp(last.pieces, ALIGNMENT)]);
  for (const layout of layouts) sumLocalPieces(layout, sums);
  for (const dtype of new Set(grads.map(({ grad }) => grad.dtype)))
    sumSharedPieces(
      groups,
      layouts.filter(({ grad, shared }) => grad.dtype === dtype && shared.length > 0),
      sums,
    );
  // each sum is computed on one rank; the other ranks add +0, which changes no sum
  for (const group of groups) group.allReduce(sums, { out: sums });
  const out = new Tensor(backend, "f32", [grads.length]);
  for (const [i, { firstSum, pieces }] of layouts.entries())
    out.paste(sumPieces(sums.view(firstSum, [pieces])), i);
  return scope.keep(out);
}

/** Sums the pieces that lie entirely within a run of this rank. */
function sumLocalPieces({ grad, size, runs, firstSum }: GradLayout, sums: Tensor<"f32">): void {
  for (const run of runs) {
    const begin = roundUp(run.begin, PIECE);
    const end = run.end === size ? size : run.end - (run.end % PIECE);
    if (begin < end) sums.paste(pieceSums(sliceElements(grad, run, begin, end)), firstSum + begin / PIECE);
  }
}

/** Assembles the shared pieces by an all-reduce. The rank that has the first element of a piece sums it. */
function sumSharedPieces(
  groups: readonly ProcessGroup[],
  layouts: readonly GradLayout[],
  sums: Tensor<"f32">,
): void {
  if (layouts.length === 0) return;
  const [{ grad }] = layouts as [GradLayout];
  const slots = layouts.flatMap((layout) => layout.shared.map((piece) => ({ layout, piece })));
  const assembledPieces = zeros(grad.backend, grad.dtype, [slots.length * PIECE]);
  for (const [slot, { layout, piece }] of slots.entries())
    for (const run of layout.runs) {
      const begin = Math.max(run.begin, piece * PIECE);
      const end = Math.min(run.end, (piece + 1) * PIECE);
      if (begin < end)
        assembledPieces.paste(sliceElements(layout.grad, run, begin, end), (slot - piece) * PIECE + begin);
    }
  // x + 0 is x, except for the sign of a zero, which does not change its square
  for (const group of groups) group.allReduce(assembledPieces, { out: assembledPieces });
  const slotSums = pieceSums(assembledPieces);
  const hasFirstElement = ({ runs }: GradLayout, piece: number): boolean =>
    runs.some(({ begin, end }) => begin <= piece * PIECE && piece * PIECE < end);
  for (const [slot, { layout, piece }] of slots.entries())
    if (hasFirstElement(layout, piece)) sums.paste(slotSums.view(slot, [1]), layout.firstSum + piece);
}
