/** The state of delayed scaling in a checkpoint. */
import { FileError } from "../errors.js";
import type { DelayedSnapshot } from "../modules/delayed-state.js";
import type { Module } from "../modules/module.js";
import { type QuantizationSnapshot, type QuantizationState, slotsOf } from "../modules/quantization-state.js";
import { type Pass, ROLES } from "../recipes/table.js";
import { asBytes } from "../tensor/data.js";
import type { NameOf } from "./checkpoint-tensors.js";
import type { TensorPlan } from "./header/header.js";
import type { TensorSource } from "./source.js";

const PASSES = Object.keys(ROLES) as readonly Pass[];
const FIELDS = ["scale", "amaxHistory"] as const satisfies readonly (keyof DelayedSnapshot)[];

function tensorName(quantization: string, pass: Pass, field: keyof DelayedSnapshot): string {
  return `quantization.${quantization}.${pass}.${field}`;
}

/** The tensors `quantization.NAME.forward.scale` and so on, for all quantizations that have a state. */
export function scaleTensors(
  module: Module,
  nameOf: NameOf = (name) => name,
): readonly (TensorPlan & { readonly bytes: Uint8Array })[] {
  return [...module.namedQuantizations()].flatMap(([name, quantization]) => {
    const snapshot = quantization.snapshotSync();
    if (!snapshot) return [];
    return PASSES.flatMap((pass) =>
      FIELDS.map((field) => {
        const values = snapshot[pass][field];
        const slots = slotsOf(quantization)[pass];
        const shape = field === "scale" ? [slots] : [values.length / slots, slots];
        const bytes = asBytes(values);
        return { name: tensorName(nameOf(name), pass, field), dtype: "F32", shape, bytes } as const;
      }),
    );
  });
}

/** The module's quantizations that have a state in the file. Throws `FileError` if a state is incomplete. */
export function storedScales(file: TensorSource, module: Module): readonly string[] {
  const isStored = (quantization: string): boolean =>
    scaleNames(quantization).some((name) => file.tensors.has(name));
  const stored = [...module.namedQuantizations()].filter(([name]) => isStored(name));
  for (const [name, state] of stored) requireScales(file, name, state);
  return stored.map(([name]) => name);
}

/** The names of all tensors of one quantization. */
export function scaleNames(quantization: string): readonly string[] {
  return PASSES.flatMap((pass) => FIELDS.map((field) => tensorName(quantization, pass, field)));
}

function requireScales(file: TensorSource, quantization: string, state: QuantizationState): void {
  for (const pass of PASSES)
    for (const field of FIELDS)
      requireField(file, tensorName(quantization, pass, field), field, slotsOf(state)[pass]);
}

function requireField(file: TensorSource, stored: string, field: keyof DelayedSnapshot, slots: number): void {
  const { name, dtype, shape } = file.entry(stored);
  const [first = 0, second] = shape;
  const fits =
    field === "scale"
      ? shape.length === 1 && first === slots
      : shape.length === 2 && first > 0 && second === slots;
  if (dtype === "F32" && fits) return;
  throw new FileError(
    `${file.path}: tensor "${name}": is ${dtype} [${shape}]; it must be F32 [${field === "scale" ? slots : `length,${slots}`}]`,
  );
}

/** The state of one quantization, from the bytes of its tensors. */
export function scalesFrom(bytes: (name: string) => Uint8Array, quantization: string): QuantizationSnapshot {
  const values = (pass: Pass, field: keyof DelayedSnapshot): Float32Array => {
    const { buffer, byteOffset, byteLength } = bytes(tensorName(quantization, pass, field));
    return new Float32Array(buffer, byteOffset, byteLength / 4);
  };
  const state = (pass: Pass): DelayedSnapshot => ({
    scale: values(pass, "scale"),
    amaxHistory: values(pass, "amaxHistory"),
  });
  return { forward: state("forward"), backward: state("backward") };
}
