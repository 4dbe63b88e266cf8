/** Checks that a checkpoint belongs to a module and an optimizer. */
import { FileError } from "../errors.js";
import { Module } from "../modules/module.js";
import { Optimizer, type OptimizerSlot } from "../optimizers/optimizer.js";
import {
  anything,
  type Domain,
  fieldOf,
  instance,
  isU64,
  needed,
  type OptionTable,
  optionsOf,
  outside,
} from "../options.js";
import type { RandomState } from "../quantizers/random-state.js";
import type { QuantizeSpec } from "../tensor/quantized.js";
import { sameShape } from "../tensor/shape.js";
import { type CheckpointRecord, quantizedRecord } from "./checkpoint-record.js";
import { quantizedParameters, type TensorPlace } from "./checkpoint-tensors.js";
import { isObject } from "./header/header.js";
import { shownJson } from "./json/json-shown.js";
import { recordedField } from "./quantized/recorded-spec.js";
import type { TensorSource } from "./source.js";

/** A training run. */
export interface CheckpointState {
  /** The module: its parameters, and the state of its quantizations. */
  readonly module: Module;
  /** The optimizer of the module's parameters. */
  readonly optimizer?: Optimizer | undefined;
  /** The random state that was passed to the module. Default: the random state that modules on its backend share. */
  readonly random?: RandomState | undefined;
}

/** The options of `saveCheckpoint`: the training run, and additional data. */
export interface SavedState extends CheckpointState {
  /**
   * Any data of the caller, for example the number of the step: null, booleans, strings, finite numbers, and arrays and
   * plain objects of these, nested at most 500 deep. `loadCheckpoint` returns an equal value.
   */
  readonly extra?: unknown | undefined;
}

/** A random state. A state from another copy of this package is accepted too, because only its seed and offset are saved. */
const randomNumbers: Domain = (caller, name, value) => {
  const [seed, offset] = ["seed", "offset"].map((key) => fieldOf(caller, name, value, key));
  if (isObject(value) && isU64(seed) && isU64(offset)) return value;
  throw outside(
    caller,
    name,
    value,
    "a RandomState, whose seed and offset are bigints of 64 bits, or left out",
  );
};

/** Checks the fields of `CheckpointState`. */
export const CHECKPOINT_STATE: OptionTable<CheckpointState> = {
  module: needed(instance(Module, "a Module")),
  optimizer: instance(Optimizer, "an optimizer, or left out"),
  random: randomNumbers,
};

/** Throws `ArgumentError` for an invalid run to load into. */
export const checkState = optionsOf(CHECKPOINT_STATE, "state");

/** Throws `ArgumentError` for an invalid run to save. `extra` is checked separately. */
export const checkSaved = optionsOf<SavedState>({ ...CHECKPOINT_STATE, extra: anything }, "state");

/** Throws `FileError` unless the same parameters are quantized with the same options. */
export function requireQuantized(
  { path }: TensorSource,
  { quantized }: CheckpointRecord,
  module: Module,
): void {
  const parameters = quantizedParameters(module);
  for (const name of new Set([...Object.keys(quantized), ...parameters.keys()])) {
    const fail = (why: string): FileError =>
      new FileError(
        `${path}: parameter "${name}" ${why}; create the module as when it was saved, with or without quantizedModelInit and its recipe`,
      );
    const [value, saved] = [parameters.get(name), quantized[name]];
    if (!value) throw fail("is quantized there and not in the module");
    if (!isObject(saved)) throw fail("is quantized in the module and not there");
    const expected = quantizedRecord(value);
    // a record lacks fields that were added later and have their defaults
    const fields = (Object.keys(value.spec) as (keyof QuantizeSpec)[]).map(recordedField);
    for (const key of new Set([...Object.keys(expected), ...fields])) {
      if (JSON.stringify(saved[key]) !== JSON.stringify(expected[key]))
        throw fail(`has ${key} ${shownJson(saved[key])} there and ${shownJson(expected[key])} in the module`);
    }
  }
}

/** The number of updates of each parameter. Throws `FileError` unless the optimizer has the same parameters. */
export function stepsOf(
  { path }: TensorSource,
  { steps }: CheckpointRecord,
  { slots }: Optimizer,
): ReadonlyMap<OptimizerSlot, number> {
  if (!steps)
    throw new FileError(
      `${path}: was saved without an optimizer; load it without one and create a new one for the module`,
    );
  const unknown = Object.keys(steps).find((name) => !slots.has(name));
  if (unknown !== undefined)
    throw new FileError(
      `${path}: the optimizer there updates "${unknown}" and this one does not; create it as when it was saved`,
    );
  return new Map([...slots].map(([name, slot]) => [slot, countOf(path, name, steps[name])]));
}

function countOf(path: string, name: string, count: unknown): number {
  if (Number.isSafeInteger(count) && (count as number) >= 0) return count as number;
  throw new FileError(
    `${path}: the step count of "${name}" is ${shownJson(count)}; a whole number from 0 is needed, so this is another optimizer's checkpoint or a damaged one`,
  );
}

/** Throws `FileError` unless the file contains exactly the expected tensors, with their types and shapes. */
export function requireTensors(
  file: TensorSource,
  tensors: readonly TensorPlace[],
  { expectedNames, optimizer }: { readonly expectedNames: ReadonlySet<string>; readonly optimizer: boolean },
): void {
  for (const { name, dtype, shape } of tensors) {
    const entry = file.entry(name);
    if (entry.dtype === dtype && sameShape(entry.shape, shape)) continue;
    throw new FileError(
      `${file.path}: tensor "${name}": is ${entry.dtype} [${entry.shape}] and ${dtype} [${shape}] is needed; make the module and the optimizer as they were`,
    );
  }
  for (const name of file.tensors.keys()) {
    if (expectedNames.has(name) || (!optimizer && name.startsWith("optimizer."))) continue;
    throw new FileError(
      `${file.path}: tensor "${name}" has no place in the module or the optimizer; make them as they were`,
    );
  }
}
