/** Loads a distributed training run from a sharded checkpoint. The ranks may differ from those that saved it. */
import { DisposedError, FileError } from "../../errors.js";
import { defaultRandom } from "../../modules/module.js";
import { allocateParameters } from "../../modules/parameter.js";
import { boolean, optionsOf } from "../../options.js";
import type { QuantizedTensor } from "../../tensor/quantized.js";
import { scaleNames, scalesFrom } from "../checkpoint-scales.js";
import { requirePath } from "../files.js";
import { onAllRanks } from "./exchange.js";
import { readIndex, type ShardedIndex } from "./index-file.js";
import { type LocalTensor, localTensors, SHARDED_STATE, type ShardedState } from "./local.js";
import { ShardFiles } from "./read.js";
import { redivide } from "./redivide.js";

/** Options of `loadShardedCheckpoint`: this rank's part of the run. */
export interface LoadedShardedState extends ShardedState {
  /** Whether the random state is restored too. Default true. */
  readonly restoreRandom?: boolean | undefined;
}

const checkLoaded = optionsOf<LoadedShardedState>({ ...SHARDED_STATE, restoreRandom: boolean }, "state");

/**
 * Restores in place the state that `saveShardedCheckpoint` saved, and returns the `extra` of rank 0 on all ranks. The number of
 * ranks and the division of parameters may differ from the save. The following state is restored to the same bits under any
 * division: masters, buffers and parameters of f32, bf16 and f16, and quantized parameters that are divided by rows at block
 * boundaries. Other state cannot be divided differently and is refused with a `FileError`: other quantized parameters; and, on
 * another number of ranks, delayed scales, random states and other state that was not equal on all ranks that had it.
 *
 * If it throws, nothing has changed on any rank. Gradients are released. Without `optimizer`, the optimizer's part of the files
 * is ignored.
 *
 * @throws `FileError` for a checkpoint that is damaged, of another version, or not of these modules and optimizers.
 * @throws `ArgumentError` for a path that is not a string and for anything but a module, optimizer, random state or group;
 * `DisposedError` for a tensor or a group that was disposed of, `DistributedError` for a group that has failed.
 */
export async function loadShardedCheckpoint(folder: string, state: LoadedShardedState): Promise<unknown> {
  const caller = "loadShardedCheckpoint";
  requirePath(caller, folder, "folder");
  const ownState = checkLoaded(caller, state);
  const { group } = ownState;
  await group.barrier();
  const { sent, local } = await onAllRanks(group, folder, async () => {
    const read = await prepare(caller, folder, ownState);
    return { sent: { sha256: read.sha256, names: read.names }, local: read };
  });
  requireSame(folder, sent);
  requireNoUnusedTensors(folder, local.index, sent, ownState.optimizer !== undefined);
  local.apply();
  await group.barrier();
  return local.index.extra;
}

/** Reads and checks everything that this rank needs. Nothing changes until `apply` of the result is called. */
async function prepare(caller: string, folder: string, state: LoadedShardedState) {
  const { module, optimizer, group, nameOf = (name: string) => name } = state;
  const { index, sha256 } = await readIndex(folder);
  const tensors = localTensors(caller, state).filter(({ tensor }) => tensor !== undefined);
  const random = state.restoreRandom === false ? undefined : randomOf(folder, index, group.rank, group.size);
  const steps = optimizer && stepsOf(folder, index, [...optimizer.slots.keys()].map(nameOf));
  const files = new ShardFiles(folder, index, { rank: group.rank, size: group.size });
  try {
    const values = new Map<string, Uint8Array>();
    const divided = new Map<QuantizedTensor, LocalTensor[]>();
    for (const tensor of tensors) {
      const bytes = await files.part(tensor);
      if (bytes) values.set(tensor.name, bytes);
      else if (tensor.member)
        divided.set(tensor.member.value, [...(divided.get(tensor.member.value) ?? []), tensor]);
    }
    for (const members of divided.values())
      for (const [name, bytes] of await redivide(files, members)) values.set(name, bytes);
    const quantizations = [...module.namedQuantizations()].map(([name, quantization]) => ({
      quantization,
      name: nameOf(name),
      stored: scaleNames(nameOf(name)).some((each) => Object.hasOwn(index.tensors, each)),
    }));
    for (const { name, stored } of quantizations)
      for (const each of stored ? scaleNames(name) : []) values.set(each, await files.undivided(each));
    for (const { name, tensor } of tensors) if (tensor?.disposed) throw new DisposedError(`${name}'s tensor`);
    const snapshots = quantizations.map(({ name, quantization, stored }) => {
      const snapshot = stored ? scalesFrom((each) => values.get(each) ?? new Uint8Array(), name) : undefined;
      return { quantization, snapshot };
    });
    const apply = (): void => {
      allocateParameters(module.parameters());
      for (const { name, tensor } of tensors) {
        const bytes = values.get(name);
        if (bytes) tensor?.write(bytes);
      }
      for (const parameter of module.parameters()) {
        parameter.clearHighPrecisionInitVal();
        parameter.clearGrads();
      }
      for (const { quantization, snapshot } of snapshots) quantization.restore(snapshot);
      for (const [name, slot] of optimizer?.slots ?? []) slot.steps = steps?.get(nameOf(name)) ?? 0;
      if (random) Object.assign(state.random ?? defaultRandom(module.backend), random);
    };
    return { index, sha256, names: [...values.keys()], apply };
  } finally {
    await files.close();
  }
}

interface FoundCheckpoint {
  readonly sha256: string;
  readonly names: readonly string[];
}

function requireSame(folder: string, checkpoints: readonly FoundCheckpoint[]): void {
  const other = checkpoints.findIndex(({ sha256 }) => sha256 !== checkpoints[0]?.sha256);
  if (other >= 0)
    throw new FileError(
      `${folder}: rank ${other} found another checkpoint there than rank 0; give all ranks the same folder`,
    );
}

/** Throws `FileError` if the checkpoint has a tensor that no rank needs. */
function requireNoUnusedTensors(
  folder: string,
  { tensors }: ShardedIndex,
  checkpoints: readonly FoundCheckpoint[],
  hasOptimizer: boolean,
): void {
  const neededNames = new Set(checkpoints.flatMap(({ names }) => names));
  for (const name of Object.keys(tensors)) {
    if (neededNames.has(name) || (!hasOptimizer && name.startsWith("optimizer."))) continue;
    throw new FileError(
      `${folder}: tensor "${name}" is not in the module or the optimizer of any rank; create them as when they were saved, with the same names`,
    );
  }
}

function stepsOf(
  folder: string,
  { steps }: ShardedIndex,
  names: readonly string[],
): ReadonlyMap<string, number> {
  if (!steps)
    throw new FileError(
      `${folder}: was saved without an optimizer; load it without one and create a new one for the module`,
    );
  return new Map(
    names.map((name) => {
      const count = Object.hasOwn(steps, name) ? steps[name] : undefined;
      if (count === undefined)
        throw new FileError(`${folder}: has no step count of "${name}"; make the optimizer as it was`);
      return [name, count];
    }),
  );
}

function randomOf(folder: string, { random, ranks }: ShardedIndex, rank: number, size: number) {
  const distinct = new Set(random.map((each) => JSON.stringify(each)));
  const ownState = random[size === ranks ? rank : 0];
  if (!ownState || (size !== ranks && distinct.size > 1))
    throw new FileError(
      `${folder}: its ${ranks} ranks had different random states, and there are ${size} ranks; resume on ${ranks}, or give restoreRandom: false`,
    );
  return { seed: BigInt(ownState.seed), offset: BigInt(ownState.offset) };
}
