/** Quantized tensors in files: the names and shapes of their member tensors, and functions that read them. */
import type { Backend } from "../../backends/backend.js";
import { FileError } from "../../errors.js";
import { hasGivenScale } from "../../formats/block.js";
import { fromBytes } from "../../ops/create.js";
import { Quantizer } from "../../quantizers/quantizer.js";
import { copyGeometry } from "../../tensor/geometry.js";
import { type CopyTensors, type Direction, QuantizedTensor } from "../../tensor/quantized.js";
import { Scope } from "../../tensor/scope.js";
import { asMatrix, type DType, type Shape, sameShape, storageBits } from "../../tensor/shape.js";
import type { Tensor } from "../../tensor/tensor.js";
import type { TensorPlan } from "../header/header.js";
import type { Holder } from "../holder.js";
import type { TensorSource } from "../source.js";
import { isCheckpoint, type Recipe, recipeKey, recipeOf, recipeSubject } from "./recipe.js";
import { parseRecipe } from "./recipe-parser.js";

/** One of the tensors that make up a quantized tensor, such as its codes, in the file and in memory. */
export interface Member {
  readonly field: keyof CopyTensors;
  readonly direction: Direction;
  readonly plan: TensorPlan;
  readonly dtype: DType;
  readonly shape: Shape;
}

/** The member tensors of one copy of the quantized tensor `name`. Files name them `NAME.rowwise.data` and so on. */
function copyMembers(name: string, { spec, shape, scales }: Recipe, direction: Direction): readonly Member[] {
  const { dataType, dataShape, scaleType, scaleShape, amaxShape } = copyGeometry(
    spec,
    asMatrix(shape),
    direction,
    scales,
  );
  const packed = storageBits(dataType) < 8 ? [...dataShape.slice(0, -1), dataShape.at(-1)! / 2] : dataShape;
  const prefix = `${name}.${direction}`;
  const scaleFileType = scaleType === "f32" ? "F32" : "U8";
  const members: Member[] = [
    {
      field: "data",
      direction,
      plan: { name: `${prefix}.data`, dtype: "U8", shape: packed },
      dtype: dataType,
      shape: dataShape,
    },
    {
      field: "scaleInv",
      direction,
      plan: { name: `${prefix}.scale_inv`, dtype: scaleFileType, shape: scaleShape },
      dtype: scaleType,
      shape: scaleShape,
    },
  ];
  if (!amaxShape) return members;
  const amax: TensorPlan = { name: `${prefix}.amax`, dtype: "F32", shape: amaxShape };
  return [...members, { field: "amax", direction, plan: amax, dtype: "f32", shape: amaxShape }];
}

/** All member tensors of the quantized tensor `name`. */
export function allMembers(name: string, recipe: Recipe): readonly Member[] {
  return recipe.usage.flatMap((direction) => copyMembers(name, recipe, direction));
}

/** A tensor, and its description in the file. */
export interface FileTensor extends TensorPlan {
  readonly tensor: Tensor;
}

/** The tensors of `value` in the file, under the name `name`. */
export function memberTensors(name: string, value: QuantizedTensor): readonly FileTensor[] {
  return allMembers(name, recipeOf(value)).flatMap(({ field, direction, plan }) => {
    const tensor = value.copy(direction)[field];
    return tensor ? [{ ...plan, tensor }] : [];
  });
}

/** The descriptions of the tensors that quantizing `name` writes. */
export function quantizedPlans(name: string, recipe: Recipe): readonly TensorPlan[] {
  const plans = allMembers(name, recipe).map(({ plan }) => plan);
  return hasGivenScale(recipe.spec) ? [...plans, { name: `${name}.amax`, dtype: "F32", shape: [1] }] : plans;
}

/** The quantized tensors of a file with their recipes. Throws `FileError` for invalid metadata. */
export function recipesOf(file: TensorSource): ReadonlyMap<string, Recipe> {
  const recipes = new Map<string, Recipe>();
  for (const [key, text] of Object.entries(file.metadata)) {
    const name = recipeSubject(key);
    if (name === undefined || isCheckpoint(key, text)) continue;
    recipes.set(name, parseRecipe(file.path, name, text));
  }
  return recipes;
}

/** Maps the name of each tensor in the file to the name of the quantized tensor that it belongs to. */
export function subjectsOf(recipes: ReadonlyMap<string, Recipe>): ReadonlyMap<string, string> {
  const subjects = new Map<string, string>();
  for (const [name, recipe] of recipes) {
    for (const part of quantizedPlans(name, recipe)) subjects.set(part.name, name);
  }
  return subjects;
}

/** Throws `FileError` if a tensor is part of a quantized tensor; `instead` says what to do. */
export function requireWhole(name: string, subjects: ReadonlyMap<string, string>, instead: string): void {
  const subject = subjects.get(name);
  if (subject === undefined) return;
  throw new FileError(
    `tensor "${name}": belongs to "${subject}", which is quantized already (metadata ${recipeKey(subject)}); ${instead}`,
  );
}

/** Stands in for the quantizer of a tensor that was read from a file. */
class FileQuantizer extends Quantizer {}

/** Throws `FileError` if a tensor of the copy is missing, or differs in type or shape from what the recipe requires. */
export function requireMembers(file: TensorSource, name: string, recipe: Recipe, direction: Direction): void {
  for (const { plan } of copyMembers(name, recipe, direction)) {
    const entry = file.entry(plan.name);
    if (entry.dtype === plan.dtype && sameShape(entry.shape, plan.shape)) continue;
    throw new FileError(
      `${file.path}: tensor "${plan.name}": is ${entry.dtype} [${entry.shape}]; by its recipe it must be ${plan.dtype} [${plan.shape}]`,
    );
  }
}

/** The file, the backend, and the owner of the tensors that are read. */
export interface Reading {
  readonly backend: Backend;
  readonly file: TensorSource;
  readonly holder: Holder;
}

/** Reads one copy of a quantized tensor. Throws as `requireMembers` does. */
export async function readQuantized(
  { backend, file, holder }: Reading,
  name: string,
  recipe: Recipe,
  direction: Direction,
): Promise<QuantizedTensor> {
  const bytes = await readMembers(file, name, recipe, [direction]);
  const value = makeQuantized(backend, bytes, recipe);
  for (const member of value.members) holder.hold(member);
  return value;
}

/** A member tensor of a quantized tensor, with its bytes. */
export interface MemberBytes extends Member {
  readonly bytes: Uint8Array;
}

/** Reads the bytes of copies of a quantized tensor. Throws as `requireMembers` does. */
export async function readMembers(
  file: TensorSource,
  name: string,
  recipe: Recipe,
  directions: readonly Direction[],
): Promise<readonly MemberBytes[]> {
  for (const direction of directions) requireMembers(file, name, recipe, direction);
  const members = directions.flatMap((direction) => copyMembers(name, recipe, direction));
  const read: MemberBytes[] = [];
  for (const member of members)
    read.push({ ...member, bytes: await file.read(file.entry(member.plan.name)) });
  return read;
}

/**
 * Creates the quantized tensor whose tensors (codes, scales, amax) have these bytes. If it throws, it first disposes of
 * the tensors that it has created.
 */
export function makeQuantized(
  backend: Backend,
  members: readonly MemberBytes[],
  { spec, shape, dtype, scales: scaleLayout }: Recipe,
): QuantizedTensor {
  const scope = new Scope();
  try {
    const copies: Partial<Record<Direction, Partial<Record<keyof CopyTensors, Tensor>>>> = {};
    for (const { field, direction, bytes, shape: memberShape, dtype: type } of members) {
      copies[direction] = { ...copies[direction], [field]: fromBytes(backend, bytes, memberShape, type) };
    }
    const fields = { spec, shape, dtype, scaleLayout, ops: new FileQuantizer(spec, {}) };
    return scope.keep(new QuantizedTensor({ ...fields, ...(copies as Record<Direction, CopyTensors>) }));
  } finally {
    scope.dispose();
  }
}
