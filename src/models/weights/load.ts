/** Fills the parameters of a model from a checkpoint, one tensor at a time. */
import { FileError } from "../../errors.js";
import { someNames } from "../../io/source.js";
import type { Module } from "../../modules/module.js";
import type { Parameter } from "../../modules/parameter.js";
import { permute } from "../../ops/layout/permute.js";
import { wideOf } from "../../tape/value.js";
import { Scope } from "../../tensor/scope.js";
import { elementCount, type Shape, sameShape, type WideDType } from "../../tensor/shape.js";
import type { Tensor } from "../../tensor/tensor.js";
import type { WeightNames, WeightPlace } from "./places.js";
import type { StoredValues } from "./stored.js";

/** A parameter that a tensor fills. */
interface Target {
  readonly name: string;
  readonly parameter: Parameter;
  readonly place: WeightPlace;
  /** The index of the parameter's first element in the tensor. */
  readonly first: number;
}

/**
 * Fills all parameters of `model`. Throws `FileError`, before anything is read, if tensors are missing, belong to no parameter or
 * have other shapes than the parameters.
 */
export async function loadWeights(
  path: string,
  model: Module,
  stored: ReadonlyMap<string, StoredValues>,
  names: WeightNames,
): Promise<void> {
  const targets = targetsOf(model, names);
  requireTensors(path, stored, targets, names);
  for (const [tensor, parts] of targets) {
    const values = stored.get(tensor) as StoredValues;
    const { backend } = model;
    const [{ parameter: one }] = parts as readonly [Target];
    await values.read(backend, parameterValue(one).dtype, (first, elements) => {
      for (const part of parts) paste(part, first, elements);
    });
    for (const { parameter, place } of parts) {
      if (place.transposedWide && values.inWideOrder) transposeBack(parameterValue(parameter));
      if (place.pairedHeads !== undefined) separatePairs(parameterValue(parameter), place.pairedHeads);
    }
  }
}

/** The parameters by the names of their tensors. */
function targetsOf(model: Module, { placeOf }: WeightNames): ReadonlyMap<string, readonly Target[]> {
  const targets = new Map<string, Target[]>();
  for (const [name, parameter] of model.namedParameters()) {
    const place = placeOf(name);
    const first = (place.matrix?.index ?? 0) * elementCount(parameter.shape);
    const parts = targets.get(place.tensor) ?? [];
    parts.push({ name, parameter, place, first });
    targets.set(place.tensor, parts);
  }
  return targets;
}

function requireTensors(
  path: string,
  stored: ReadonlyMap<string, StoredValues>,
  targets: ReadonlyMap<string, readonly Target[]>,
  { isIgnored }: WeightNames,
): void {
  const fail = (what: string): FileError => new FileError(`${path}: ${what}`);
  const missing = [...targets.keys()].filter((name) => !stored.has(name));
  if (missing.length > 0)
    throw fail(
      `tensors are missing (${missing.length}): ${someNames(missing)}; the configuration needs them, so get the files again or correct the configuration`,
    );
  const unexpected = [...stored.keys()].filter((name) => !targets.has(name) && !isIgnored(name));
  if (unexpected.length > 0)
    throw fail(
      `tensors belong to no parameter (${unexpected.length}): ${someNames(unexpected)}; the configuration describes another model`,
    );
  for (const [name, parts] of targets) {
    const { shape, inWideOrder } = stored.get(name) as StoredValues;
    const needed = neededShape(parts, inWideOrder);
    if (!sameShape(shape, needed))
      throw fail(`tensor "${name}" is [${shape}]; the configuration needs [${needed}]`);
  }
}

/** The shape of the tensor that has these parameters. */
function neededShape([target]: readonly Target[], inWideOrder: boolean): Shape {
  const { parameter, place } = target as Target;
  const { shape = parameter.shape, matrix, transposedWide } = place;
  const stored = transposedWide && inWideOrder ? shape.toReversed() : shape;
  return matrix ? [matrix.count, ...stored] : stored;
}

/** Copies the elements that belong to a parameter. `elements` are those of its tensor from index `first` on. */
function paste({ parameter, first: begin }: Target, first: number, elements: Tensor<WideDType>): void {
  const value = parameterValue(parameter);
  const from = Math.max(begin, first);
  const to = Math.min(begin + value.size, first + elements.size);
  if (from >= to) return;
  const part = to - from === elements.size ? elements : elements.slice(from - first, [to - from]);
  value.paste(part, from - begin);
}

/** Transposes a matrix [rows, columns] whose elements lie in the order of [columns, rows]. */
function transposeBack(value: Tensor<WideDType>): void {
  using _scope = new Scope();
  const [rows, columns] = value.shape as readonly [number, number];
  value.paste(permute(value.reshape([columns, rows]), [1, 0]).reshape([value.size]), 0);
}

/**
 * Moves the rows of each head from the order of neighbouring pairs (first, second, first, second, …) to the order of halves (all
 * first ones, then all second ones).
 */
function separatePairs(value: Tensor<WideDType>, heads: number): void {
  using _scope = new Scope();
  const { shape, size } = value;
  const pairs = (shape[0] as number) / heads / 2;
  const columns = size / (shape[0] as number);
  const split = value.reshape([heads, pairs, 2, columns]);
  value.paste(permute(split, [0, 2, 1, 3]).reshape([size]), 0);
}

function parameterValue(parameter: Parameter): Tensor<WideDType> {
  return wideOf("loadCausalLM: a parameter", parameter.value);
}
