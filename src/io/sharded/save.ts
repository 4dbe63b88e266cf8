/** Saves a distributed training run: each rank writes a file with its part, and an index lists the contents of all files. */
import { randomBytes } from "node:crypto";
import { mkdir, readdir, rm, rmdir, stat } from "node:fs/promises";
import { join } from "node:path";
import { FileError } from "../../errors.js";
import { defaultRandom } from "../../modules/module.js";
import { anything, optionsOf } from "../../options.js";
import { codeOf, fileError, requirePath } from "../files.js";
import { syncFolder } from "../replace/target.js";
import { writeSafetensors } from "../safetensors-writer.js";
import { onAllRanks, succeedOnAllRanks } from "./exchange.js";
import {
  generationFolder,
  indexText,
  isSaveName,
  type ShardedIndex,
  shardPath,
  writeIndex,
} from "./index-file.js";
import { digestOf, type LocalTensor, localTensors, SHARDED_STATE, type ShardedState } from "./local.js";
import { plannedSteps, plannedTensors, type RankState, type RankTensor } from "./plan.js";

/** The options of `saveShardedCheckpoint`: one rank's part of the run, and additional data. */
export interface SavedShardedState extends ShardedState {
  /** As in `saveCheckpoint`. The value of rank 0 is saved. */
  readonly extra?: unknown | undefined;
}

const checkSaved = optionsOf<SavedShardedState>({ ...SHARDED_STATE, extra: anything }, "state");

/**
 * Saves a training run of all ranks of a group into a folder that all ranks can access: the state that `saveCheckpoint` saves, as
 * one safetensors file per rank and an index. Parts that several ranks have with equal bytes are written once; the ranks share
 * the writing. `Parameter.part` tells which part of a whole parameter a rank has; the rank's masters and buffers are the same
 * part of their whole.
 *
 * Each save writes new files. The index is replaced after all files are on the disk and rank 0 has found the files of all ranks.
 * Then the files of the previous checkpoint are removed, and the files and unfinished indexes (`.lockstep-index-….tmp`) of
 * interrupted saves. A save that fails, or is killed at any time, leaves the previous checkpoint intact. All ranks must call it
 * between the same two steps, and continue the run after it has resolved. Only one run may save into a folder.
 *
 * @throws `ArgumentError` for a path that is not a string, for anything but a module, optimizer, random state or group, for an
 * unknown option, for an `extra` that loading would not restore exactly, for an optimizer of another module, and if the parts of
 * all ranks do not form whole tensors; `DisposedError` for a tensor or a group that was disposed of.
 * @throws `FileError` if the file of any rank cannot be written, or if ranks do not find each other's files because `folder` is
 * not the same folder for all; the new files are removed then. `DistributedError` for a group that has failed.
 */
export async function saveShardedCheckpoint(folder: string, state: SavedShardedState): Promise<void> {
  const caller = "saveShardedCheckpoint";
  requirePath(caller, folder, "folder");
  const ownState = checkSaved(caller, state);
  const { group } = ownState;
  const first = group.rank === 0;
  await group.barrier();
  const { sent, local: tensors } = await onAllRanks(group, folder, async () => {
    const local = localTensors(caller, ownState);
    const generation = `generation-${randomBytes(12).toString("hex")}`;
    return { sent: { generation, ...(await describeState(local, ownState)) }, local: local };
  });
  const generation = sent[0]?.generation as string;
  const index = {
    generation,
    ranks: group.size,
    tensors: plannedTensors(caller, sent),
    steps: plannedSteps(caller, sent),
    random: sent.map(({ random }) => random),
    ...(first && ownState.extra !== undefined ? { extra: ownState.extra } : {}),
  };
  const undo = (): Promise<void> => removeShard(folder, index, group.rank);
  const { sent: sizes, local: text } = await onAllRanks(
    group,
    folder,
    async () => {
      const text = indexText(index);
      return { sent: await writeShard(folder, index, group.rank, tensors), local: text };
    },
    undo,
  );
  await succeedOnAllRanks(group, folder, () => requireShards(folder, index, group.rank, sizes), undo);
  await succeedOnAllRanks(group, folder, async () => {
    if (first) await writeIndex(folder, text);
  });
  if (first) await removeOthers(folder, generation);
}

/** Returns the description of this rank's state that the other ranks need. */
async function describeState(tensors: readonly LocalTensor[], state: ShardedState): Promise<RankState> {
  const { module, optimizer, nameOf = (name) => name } = state;
  const { seed, offset } = state.random ?? defaultRandom(module.backend);
  const descriptions: RankTensor[] = [];
  for (const { name, dtype, shape: stored, part, recipe, bytes: read } of tensors) {
    const bytes = await read();
    const { shape, ranges } = part;
    descriptions.push({
      name,
      dtype,
      shape,
      ranges,
      stored,
      recipe,
      sha256: digestOf(bytes),
      bytes: bytes.length,
    });
  }
  const steps = optimizer && [...optimizer.slots].map(([name, slot]) => [nameOf(name), slot.steps] as const);
  return {
    tensors: descriptions,
    steps: steps && Object.fromEntries(steps),
    random: { seed: String(seed), offset: String(offset) },
  };
}

type Planned = Pick<ShardedIndex, "generation" | "ranks" | "tensors">;

/** Whether the file of a rank contains a tensor. */
const isWrittenBy = ({ tensors }: Planned, rank: number, name: string): boolean =>
  tensors[name]?.parts.some(({ copies }) => copies.some(({ file }) => file === rank)) === true;

/** Writes the file of a rank. Returns its size, or null for a rank that writes none. */
async function writeShard(
  folder: string,
  index: Planned,
  rank: number,
  tensors: readonly LocalTensor[],
): Promise<number | null> {
  const ownTensors = tensors.filter(({ name }) => isWrittenBy(index, rank, name));
  const generation = generationFolder(folder, index);
  await mkdir(generation, { recursive: true }).catch((cause: unknown) => {
    throw fileError(folder, "cannot be written", cause);
  });
  if (ownTensors.length === 0) return null;
  const plan = { tensors: ownTensors.map(({ name, dtype, shape }) => ({ name, dtype, shape })) };
  const path = shardPath(folder, index, rank);
  await writeSafetensors(path, plan, async (put) => {
    for (const { name, bytes } of ownTensors) await put(name, await bytes());
  });
  await syncFolder(folder);
  return (await sizeOf(path)) ?? 0;
}

/** Returns the size of a file, or null if there is none. */
async function sizeOf(path: string): Promise<number | null> {
  try {
    return (await stat(path)).size;
  } catch (cause) {
    if (codeOf(cause) === "ENOENT") return null;
    throw fileError(path, "cannot be read", cause);
  }
}

/**
 * Throws `FileError` unless rank 0 finds the files of all ranks, with the sizes that the ranks have written, and every other rank
 * finds the first of these files. Otherwise the ranks have folders of the same name on different disks.
 */
async function requireShards(
  folder: string,
  index: Planned,
  rank: number,
  sizes: readonly (number | null)[],
): Promise<void> {
  const written = [...sizes.entries()].filter(([, size]) => size !== null);
  for (const [writer, size] of rank === 0 ? written : written.slice(0, 1)) {
    const path = shardPath(folder, index, writer);
    const actualSize = await sizeOf(path);
    if (actualSize === size) continue;
    throw new FileError(
      `${path}: rank ${writer} has written ${size} bytes, and rank ${rank} finds ${actualSize === null ? "no file" : `${actualSize} bytes`} there; give all ranks one folder that all can access`,
    );
  }
}

/** Removes the file of a rank, and the folder if no files of other ranks are left in it. Files that cannot be removed remain. */
async function removeShard(folder: string, index: Planned, rank: number): Promise<void> {
  await rm(shardPath(folder, index, rank), { force: true }).catch(() => undefined);
  await rmdir(generationFolder(folder, index)).catch(() => undefined);
}

/**
 * Removes the files of earlier checkpoints and of interrupted saves. A file that cannot be removed remains until the next save.
 */
async function removeOthers(folder: string, generation: string): Promise<void> {
  for (const name of await readdir(folder)) {
    if (name === generation || !isSaveName(name)) continue;
    await rm(join(folder, name), { recursive: true, force: true }).catch(() => undefined);
  }
}
