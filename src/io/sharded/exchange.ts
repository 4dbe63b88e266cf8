/** Messages between ranks that save or load a checkpoint together. */
import type { ProcessGroup } from "../../collectives/group.js";
import { DistributedError, FileError, messageOf } from "../../errors.js";
import { tensor } from "../../ops/create.js";
import { Holder } from "../holder.js";

/** Sends a value to all ranks as JSON, and returns the values of all ranks. */
async function exchange<T>(group: ProcessGroup, value: T): Promise<readonly T[]> {
  const bytes = new TextEncoder().encode(JSON.stringify(value));
  using holder = new Holder();
  const { backend } = group;
  const length = holder.hold(tensor(backend, Int32Array.of(bytes.length), [1], "i32"));
  const lengths = [...(await holder.hold(group.allGather(length)).data())];
  const message = holder.hold(tensor(backend, bytes, [bytes.length], "u8"));
  const all = await holder.hold(group.allGather(message, { rows: lengths })).data();
  let offset = 0;
  return lengths.map((count) => {
    const part = all.slice(offset, offset + count);
    offset += count;
    return JSON.parse(new TextDecoder().decode(part)) as T;
  });
}

/** The result of a rank: a value for all ranks, and a value that only this rank needs. */
export interface RankResult<T, K> {
  readonly sent: T;
  readonly local: K;
}

/**
 * Runs `body` on every rank and returns what all ranks send. If `body` throws on one rank, this function throws on all of them:
 * that rank throws the error of its body, the others a `FileError` that names the rank. Before that, every rank runs `undo`.
 * `undo` does not run if the group fails, because a rank cannot know then whether the others continue.
 */
export async function onAllRanks<T, K>(
  group: ProcessGroup,
  folder: string,
  body: () => Promise<RankResult<T, K>>,
  undo: () => Promise<void> = async () => {},
): Promise<{ readonly sent: readonly T[]; readonly local: K }> {
  let done: RankResult<T, K> | undefined;
  let failure: unknown;
  try {
    done = await body();
  } catch (error) {
    // if the group has failed, the error cannot be sent to the others
    if (error instanceof DistributedError) throw error;
    failure = error;
  }
  const report = done ? { sent: done.sent } : { failure: messageOf(failure) };
  const all = await exchange<{ readonly sent?: T; readonly failure?: string }>(group, report);
  const rank = all.findIndex((each) => each.failure !== undefined);
  if (done && rank < 0) return { sent: all.map(({ sent }) => sent as T), local: done.local };
  await undo();
  throw done ? new FileError(`${folder}: rank ${rank} failed: ${all[rank]?.failure}`) : failure;
}

/** Runs `body` on every rank as `onAllRanks` does, and returns after it has succeeded on all of them. */
export async function succeedOnAllRanks(
  group: ProcessGroup,
  folder: string,
  body: () => Promise<void>,
  undo?: () => Promise<void>,
): Promise<void> {
  const done = async () => ({ sent: null, local: await body() });
  await onAllRanks(group, folder, done, undo);
}
