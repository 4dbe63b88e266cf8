/** Ranks as a mesh: which of them are alike in all axes but one. */
import { ArgumentError } from "../errors.js";
import { integer, optionsOf } from "../options.js";

/** The axes of a mesh, fastest first: neighbours in rank are neighbours along `tp`. */
export const MESH_AXES = ["tp", "cp", "dp", "pp"] as const;

/** Tensor, context, data and pipeline parallelism. */
export type MeshAxis = (typeof MESH_AXES)[number];

/** How many ranks lie along each axis; 1 where it is left out. They multiply to the size of the group. */
export type MeshSizes = { readonly [A in MeshAxis]?: number | undefined };

/** Where a rank lies, or how many lie there, along every axis. */
export type MeshCoordinates = { readonly [A in MeshAxis]: number };

const count = integer(1);

export const checkMesh = optionsOf<MeshSizes>({ tp: count, cp: count, dp: count, pp: count });

/** All sizes. Throws `ArgumentError` where they do not multiply to `size`. */
export function completeMesh({ tp = 1, cp = 1, dp = 1, pp = 1 }: MeshSizes, size: number): MeshCoordinates {
  const product = tp * cp * dp * pp;
  if (product === size) return { tp, cp, dp, pp };
  throw new ArgumentError(
    `split: tp ${tp} x cp ${cp} x dp ${dp} x pp ${pp} is ${product} ranks; the group has ${size}`,
  );
}

/** Where member `rank` lies. */
export function coordinatesOf(sizes: MeshCoordinates, rank: number): MeshCoordinates {
  const at = { tp: 0, cp: 0, dp: 0, pp: 0 };
  let rest = rank;
  for (const axis of MESH_AXES) {
    at[axis] = rest % sizes[axis];
    rest = Math.floor(rest / sizes[axis]);
  }
  return at;
}

/** The members that lie where `rank` lies along every axis but this one, ascending. */
export function membersAlong(sizes: MeshCoordinates, rank: number, axis: MeshAxis): readonly number[] {
  const size = MESH_AXES.reduce((product, each) => product * sizes[each], 1);
  const here = coordinatesOf(sizes, rank);
  return Array.from({ length: size }, (_, other) => other).filter((other) => {
    const there = coordinatesOf(sizes, other);
    return MESH_AXES.every((each) => each === axis || there[each] === here[each]);
  });
}
