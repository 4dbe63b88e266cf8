/** Meshes of ranks: subgroups of ranks whose positions differ along one axis only. */
import { ArgumentError } from "../errors.js";
import { integer, optionsOf } from "../options.js";

/** The axes of a mesh, fastest first: consecutive ranks are neighbours along `tp`. */
export const MESH_AXES = ["tp", "cp", "dp", "pp"] as const;

/** The name of a mesh axis: `tp` (tensor), `cp` (context), `dp` (data) or `pp` (pipeline parallelism). */
export type MeshAxis = (typeof MESH_AXES)[number];

/** The number of ranks along each axis. Default 1. The product has to be the size of the group. */
export type MeshSizes = { readonly [A in MeshAxis]?: number | undefined };

/** For every axis, the position of a rank or the number of ranks. */
export type MeshCoordinates = { readonly [A in MeshAxis]: number };

const count = integer(1);

export const checkMesh = optionsOf<MeshSizes>({ tp: count, cp: count, dp: count, pp: count }, "mesh");

/** The size of every axis. Throws `ArgumentError` if their product is not `size`. */
export function completeMesh({ tp = 1, cp = 1, dp = 1, pp = 1 }: MeshSizes, size: number): MeshCoordinates {
  const product = tp * cp * dp * pp;
  if (product === size) return { tp, cp, dp, pp };
  throw new ArgumentError(
    `split: tp ${tp} x cp ${cp} x dp ${dp} x pp ${pp} is ${product} ranks; the group has ${size}`,
  );
}

/** The position of member `rank`. */
export function coordinatesOf(sizes: MeshCoordinates, rank: number): MeshCoordinates {
  const coordinates = { tp: 0, cp: 0, dp: 0, pp: 0 };
  let rest = rank;
  for (const axis of MESH_AXES) {
    coordinates[axis] = rest % sizes[axis];
    rest = Math.floor(rest / sizes[axis]);
  }
  return coordinates;
}

/** The ranks with the coordinates of `rank` on every axis except this one, ascending. */
export function membersAlong(sizes: MeshCoordinates, rank: number, axis: MeshAxis): readonly number[] {
  const size = MESH_AXES.reduce((product, each) => product * sizes[each], 1);
  const ownCoordinates = coordinatesOf(sizes, rank);
  return Array.from({ length: size }, (_, other) => other).filter((other) => {
    const otherCoordinates = coordinatesOf(sizes, other);
    return MESH_AXES.every((each) => each === axis || otherCoordinates[each] === ownCoordinates[each]);
  });
}
