/** Division of a weight among ranks: the shape, the position and the values of each rank's part. */
import { ShapeError } from "../../errors.js";
import { partAlong, type TensorPart } from "../../tensor/part.js";
import type { Parameter } from "../parameter.js";
import type { ParallelMode } from "./options.js";
import type { TensorParallel } from "./tensor-parallel.js";

/** For each mode, the dimension of [N, K] that it divides, and the name of its size. */
const SIZES: Readonly<Record<ParallelMode, readonly [axis: 0 | 1, name: string]>> = {
  column: [0, "outFeatures"],
  row: [1, "inFeatures"],
};

/**
 * Returns the shape of a rank's part of a weight [N, K]. Throws `ShapeError` if the size is not divisible by the number of ranks.
 */
export function partShape(
  caller: string,
  { group, mode, pieces }: TensorParallel,
  [out, inward]: readonly [out: number, inward: number],
  name: string = mode === "column" && pieces > 1 ? "outFeatures / pieces" : SIZES[mode][1],
): readonly [out: number, inward: number] {
  const [axis] = SIZES[mode];
  const features = (axis === 0 ? out : inward) / pieces;
  if (features % group.size !== 0)
    throw new ShapeError(
      `${caller}: ${name} ${features} is not divisible among ${group.size} ranks; give a multiple of ${group.size}`,
    );
  return axis === 0 ? [out / group.size, inward] : [out, inward / group.size];
}

/** Records in a weight [N, K] which part of it each rank has. */
export function divideWeight(
  weight: Parameter,
  { group, mode, pieces }: Pick<TensorParallel, "group" | "mode" | "pieces">,
  fullShape: readonly [out: number, inward: number],
): void {
  const [axis] = SIZES[mode];
  const count = mode === "column" ? pieces : 1;
  const size = fullShape[axis] / count / group.size;
  weight.setRankParts({
    group,
    axis,
    partOf: (rank) =>
      partAlong(
        fullShape,
        axis,
        Array.from({ length: count }, (_, piece) => {
          const begin = (piece * group.size + rank) * size;
          return [begin, begin + size] as const;
        }),
      ),
  });
}

/** Records in the bias of a weight that is divided by rows which part of it each rank has: the same rows. */
export function divideBias(bias: Parameter, { ranks }: Parameter): void {
  if (!ranks) return;
  const rankPart = (rank: number): TensorPart => {
    const { shape, ranges } = ranks.partOf(rank);
    return { shape: shape.slice(0, 1), ranges: ranges.slice(0, 1) };
  };
  bias.setRankParts({ group: ranks.group, axis: 0, partOf: rankPart });
}

/** Returns a rank's part of the values of a weight [N, K]. */
export function partValues(
  { group: { rank, size }, mode, pieces }: TensorParallel,
  values: Float32Array,
  [out, inward]: readonly [out: number, inward: number],
): Float32Array {
  if (mode === "column") {
    const count = (out / pieces / size) * inward;
    const part = new Float32Array(values.length / size);
    for (let piece = 0; piece < pieces; piece++) {
      const begin = (piece * size + rank) * count;
      part.set(values.subarray(begin, begin + count), piece * count);
    }
    return part;
  }
  const columns = inward / size;
  const part = new Float32Array(out * columns);
  for (let row = 0; row < out; row++) {
    const begin = row * inward + rank * columns;
    part.set(values.subarray(begin, begin + columns), row * columns);
  }
  return part;
}
