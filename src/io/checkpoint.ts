/**
 * Saves and loads the whole state of a training run in one safetensors file, so that it can continue as if
 * uninterrupted.
 */
import { DisposedError, FileError } from "../errors.js";
import { defaultRandom } from "../modules/module.js";
import { allocateParameters } from "../modules/parameter.js";
import type { RandomState } from "../quantizers/random-state.js";
import { asBytes } from "../tensor/data.js";
import {
  type CheckpointState,
  checkSaved,
  checkState,
  requireQuantized,
  requireTensors,
  type SavedState,
  stepsOf,
} from "./checkpoint-checks.js";
import {
  CheckpointDigest,
  readRecord,
  recordText,
  type StoredRecord,
  VERSION,
  withDigest,
} from "./checkpoint-record.js";
import { scaleNames, scalesFrom, scaleTensors, storedScales } from "./checkpoint-scales.js";
import {
  optimizerTensors,
  parameterMetadata,
  parameterTensors,
  type TensorPlace,
  version1ParameterTensors,
} from "./checkpoint-tensors.js";
import { requirePath } from "./files.js";
import type { TensorPlan } from "./header/header.js";
import { RECORD_KEY } from "./quantized/recipe.js";
import { SafetensorsFile } from "./safetensors.js";
import { writeSafetensors } from "./safetensors-writer.js";
import type { TensorSource } from "./source.js";

export type { CheckpointState, SavedState };

/**
 * Writes parameters, masters, buffers, step counts, scales, amaxes, the random state and `extra` to `path`. Values are copied to
 * host memory at the time of the call. The file appears at `path` when it is complete. Gradients and cached weights are not
 * saved, so call it between steps. Throws `ArgumentError` for anything but a module, optimizer or random state, for an unknown
 * option, for an `extra` that loading would not restore exactly, and for an optimizer of another module; `FileError` if the file
 * cannot be written or its header would be too long to be read.
 */
export async function saveCheckpoint(path: string, state: SavedState): Promise<void> {
  requirePath("saveCheckpoint", path);
  const ownState = checkSaved("saveCheckpoint", state);
  const { module, optimizer, extra } = ownState;
  const { seed, offset } = randomOf(ownState);
  const steps =
    optimizer && Object.fromEntries([...optimizer.slots].map(([name, slot]) => [name, slot.steps]));
  const text = recordText({ version: VERSION, quantized: {}, steps, random: { seed, offset }, extra });
  const recipes = parameterMetadata(module);
  const values = tensorsOf(ownState, VERSION).map(({ tensor, ...plan }) => ({
    ...plan,
    bytes: asBytes(tensor.dataSync()),
  }));
  const tensors = [...values, ...scaleTensors(module)];
  const digest = new CheckpointDigest(text, recipes);
  for (const tensor of sortedByName(tensors)) digest.add(tensor, tensor.bytes);
  const metadata = { [RECORD_KEY]: withDigest(text, digest.end()), ...recipes };
  await writeSafetensors(path, { tensors, metadata }, async (put) => {
    for (const { name, bytes } of tensors) await put(name, bytes);
  });
}

/**
 * Restores in place the state that `saveCheckpoint` saved, and returns its `extra`. The module must have been created in the same
 * way; it may have been used since. Its gradients are released. Without `optimizer`, the optimizer's part of the file is ignored;
 * create optimizers after loading in that case, because their masters are copied from the parameters when they are created. If it
 * throws, nothing has changed: `FileError` for a file that is damaged, of another version, or not of this module and optimizer.
 *
 * @throws `ArgumentError` for a path that is not a string and for anything but a module, optimizer or random state.
 */
export async function loadCheckpoint(path: string, state: CheckpointState): Promise<unknown> {
  requirePath("loadCheckpoint", path);
  const ownState = checkState("loadCheckpoint", state);
  const file = await SafetensorsFile.open(path);
  try {
    return await load(file, ownState);
  } finally {
    await file.close();
  }
}

async function load(file: TensorSource, state: CheckpointState): Promise<unknown> {
  const { module, optimizer } = state;
  const record = readRecord(file);
  requireQuantized(file, record, module);
  const steps = optimizer && stepsOf(file, record, optimizer);
  const tensors = tensorsOf(state, record.version);
  const scaled = storedScales(file, module);
  const names = new Set([...tensors.map(({ name }) => name), ...scaled.flatMap(scaleNames)]);
  requireTensors(file, tensors, { expectedNames: names, optimizer: optimizer !== undefined });
  const bytes = await readTensors(file, record, names);
  for (const { name, tensor } of tensors) if (tensor.disposed) throw new DisposedError(`${name}'s tensor`);

  allocateParameters(module.parameters());
  for (const { name, tensor } of tensors) tensor.write(bytes(name));
  for (const parameter of module.parameters()) {
    parameter.clearHighPrecisionInitVal();
    parameter.clearGrads();
  }
  for (const [name, quantization] of module.namedQuantizations())
    quantization.restore(scaled.includes(name) ? scalesFrom(bytes, name) : undefined);
  for (const [slot, count] of steps ?? []) slot.steps = count;
  Object.assign(randomOf(state), record.random);
  return record.extra;
}

/** The bytes of the named tensors. Throws `FileError` if any part of the file has changed since it was written. */
async function readTensors(
  file: TensorSource,
  record: StoredRecord,
  names: ReadonlySet<string>,
): Promise<(name: string) => Uint8Array> {
  const contents = new Map<string, Uint8Array>();
  const digest = new CheckpointDigest(record.text, file.metadata);
  for (const entry of sortedByName(file.tensors.values())) {
    const bytes = await file.read(entry);
    digest.add(entry, bytes);
    if (names.has(entry.name)) contents.set(entry.name, bytes);
  }
  if (digest.end() !== record.sha256)
    throw new FileError(
      `${file.path}: its contents have changed since it was saved; the file is damaged or was edited`,
    );
  return (name) => contents.get(name) ?? new Uint8Array();
}

function sortedByName<T extends TensorPlan>(tensors: Iterable<T>): readonly T[] {
  return [...tensors].sort((a, b) => (a.name < b.name ? -1 : 1));
}

function randomOf({ module, random }: CheckpointState): RandomState {
  return random ?? defaultRandom(module.backend);
}

function tensorsOf({ module, optimizer }: CheckpointState, version: number): readonly TensorPlace[] {
  const parameters = version === VERSION ? parameterTensors(module) : version1ParameterTensors(module);
  return [...parameters, ...(optimizer ? optimizerTensors(module, optimizer) : [])];
}
