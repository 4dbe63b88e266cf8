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

/** A number for each axis of a mesh, fastest axis first. */
export type AxisNumbers<A extends string = string> = { readonly [K in A]: number };

/** Returns the mesh in words. Throws `ArgumentError` if the product of its sizes is not `size`. */
export function requireMesh(caller: string, sizes: AxisNumbers, size: number): string {
  const text = Object.entries(sizes)
    .map(([axis, size]) => `${axis} ${size}`)
    .join(" x ");
  const product = Object.values(sizes).reduce((total, each) => total * each, 1);
  if (product === size) return text;
  throw new ArgumentError(`${caller}: ${text} is ${product} ranks; the group has ${size}`);
}

/** The position of member `rank`. */
export function coordinatesOf<A extends string>(sizes: AxisNumbers<A>, rank: number): AxisNumbers<A> {
  let quotient = rank;
  const coordinates = (Object.entries(sizes) as [A, number][]).map(([axis, size]) => {
    const coordinate = quotient % size;
    quotient = Math.floor(quotient / size);
    return [axis, coordinate] as const;
  });
  return Object.fromEntries(coordinates) as AxisNumbers<A>;
}

/** The ranks with the coordinates of `rank` on every axis except this one, ascending. */
export function membersAlong<A extends string>(
  sizes: AxisNumbers<A>,
  rank: number,
  axis: A,
): readonly number[] {
  const axes = Object.keys(sizes) as A[];
  const size = axes.reduce((product, each) => product * sizes[each], 1);
  const ownCoordinates = coordinatesOf(sizes, rank);
  return Array.from({ length: size }, (_, member) => member).filter((member) => {
    const otherCoordinates = coordinatesOf(sizes, member);
    return axes.every((each) => each === axis || otherCoordinates[each] === ownCoordinates[each]);
  });
}
