/** Meshes of hybrid sharding: parameters are divided along one axis, and copied along the other. */
import type { ProcessGroup } from "../../collectives/group.js";
import { requireMesh } from "../../collectives/mesh.js";
import { integer, optionsOf } from "../../options.js";

/**
 * The number of ranks along each axis of the mesh of `fullyShard`. The product has to be the size of the group. Consecutive ranks
 * are neighbours along `shard`.
 */
export interface ShardingMesh {
  /** The number of ranks that have the same rows of each parameter. Default 1. */
  readonly replicate?: number | undefined;
  /** The number of ranks among which each parameter is divided. Default 1. */
  readonly shard?: number | undefined;
}

/** The groups of this rank in a mesh. */
export interface MeshGroups {
  /** The ranks among which parameters are divided. */
  readonly shard: ProcessGroup;
  /** The ranks that have the same rows as this rank, including this rank. Undefined if this rank is the only one. */
  readonly replicate: ProcessGroup | undefined;
}

const count = integer(1);

export const checkShardingMesh = optionsOf<ShardingMesh>({ replicate: count, shard: count });

/** The groups that `meshGroups` has created, by group and mesh. */
const created = new WeakMap<ProcessGroup, Map<string, MeshGroups>>();

/**
 * Divides a group into a mesh. Without a mesh, all ranks are along `shard`. Modules that are sharded over equal meshes share the
 * groups.
 *
 * @throws `ArgumentError` if the product of the sizes is not the size of the group, and as `ProcessGroup.split`.
 */
export function meshGroups(caller: string, group: ProcessGroup, mesh: ShardingMesh | undefined): MeshGroups {
  const { replicate = 1, shard = 1 } = mesh ?? { shard: group.size };
  const sizes = { shard, replicate };
  const key = requireMesh(caller, sizes, group.size);
  if (replicate === 1) return { shard: group, replicate: undefined };
  const ofGroup = created.get(group) ?? new Map<string, MeshGroups>();
  const groups = ofGroup.get(key) ?? group.splitAlong(caller, sizes);
  created.set(group, ofGroup.set(key, groups));
  return groups;
}
