/** Fills the parameters of a model from a checkpoint, one tensor at a time. */
import { FileError } from "../../errors.js";
import { someNames } from "../../io/source.js";
import type { Module } from "../../modules/module.js";
import type { Parameter } from "../../modules/parameter.js";
import { castTo } from "../../ops/cast/cast.js";
import { tensor } from "../../ops/create.js";
import { add } from "../../ops/elementwise/operators.gen.js";
import { expand } from "../../ops/layout/copy-slice.js";
import { wideOf } from "../../tape/value.js";
import { elementCount, type Shape, sameShape, type WideDType } from "../../tensor/shape.js";
import type { Tensor } from "../../tensor/tensor.js";
import { joinHeads, separatePairs, transposeBack } from "./arrange.js";
import type { WeightNames, WeightSource } from "./sources.js";
import type { StoredValues } from "./stored.js";

/** A parameter that a tensor fills, or a part of it. */
interface Target {
  readonly name: string;
  readonly parameter: Parameter;
  readonly source: WeightSource;
  /** The number of the parameter's elements in the tensor. */
  readonly count: number;
  /** The index of the first of these elements in the tensor. */
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
  for (const [name, parts] of targets) {
    await fill(stored.get(name) as StoredValues, parts as readonly [Target, ...Target[]]);
    for (const { parameter, source } of parts) {
      const value = parameterValue(parameter);
      if (source.transposedWide && stored.get(name)?.inWideOrder) transposeBack(value);
      if (source.pairedHeads !== undefined) separatePairs(value, source.pairedHeads);
    }
  }
  // this moves elements between the parts of a parameter, so all parts must have been read
  for (const parts of targets.values())
    for (const { parameter, source } of parts)
      if (source.latentHeads && source.first === 0) joinHeads(parameterValue(parameter), source.latentHeads);
}

/** Reads the values of a tensor into its parameters. Subtracts the `addend` of the parameter before values are rounded. */
async function fill(values: StoredValues, parts: readonly [Target, ...Target[]]): Promise<void> {
  const [{ parameter: one, source }] = parts;
  const { backend, dtype } = parameterValue(one);
  const { addend = 0 } = source;
  await values.read(backend, addend === 0 ? dtype : "f32", (first, elements) => {
    const shift = (): Tensor<WideDType> => expand(tensor(backend, [-addend], []), elements.shape);
    const converted = addend === 0 ? elements : castTo(add(elements, shift()), dtype);
    for (const part of parts) paste(part, first, converted);
  });
}

/** For each tensor name, the parameters that the tensor fills. */
function targetsOf(model: Module, { sourcesOf }: WeightNames): ReadonlyMap<string, readonly Target[]> {
  const targets = new Map<string, Target[]>();
  for (const [name, parameter] of model.namedParameters())
    for (const source of sourcesOf(name)) {
      const count = elementCount(source.shape ?? parameter.shape);
      const parts = targets.get(source.tensor) ?? [];
      parts.push({ name, parameter, source, count, first: (source.matrix?.index ?? 0) * count });
      targets.set(source.tensor, parts);
    }
  return targets;
}

function requireTensors(
  path: string,
  stored: ReadonlyMap<string, StoredValues>,
  targets: ReadonlyMap<string, readonly Target[]>,
  { isIgnored }: WeightNames,
): void {
  const fail = (label: string): FileError => new FileError(`${path}: ${label}`);
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

/** The required shape of the tensor that fills these parameters. */
function neededShape([target]: readonly Target[], inWideOrder: boolean): Shape {
  const { parameter, source } = target as Target;
  const { shape = parameter.shape, matrix, transposedWide } = source;
  const stored = transposedWide && inWideOrder ? shape.toReversed() : shape;
  return matrix ? [matrix.count, ...stored] : stored;
}

/** Copies the elements that belong to a parameter. `elements` begins at element `first` of the tensor. */
function paste(
  { parameter, source, count, first: begin }: Target,
  first: number,
  elements: Tensor<WideDType>,
): void {
  const from = Math.max(begin, first);
  const to = Math.min(begin + count, first + elements.size);
  if (from >= to) return;
  const part = to - from === elements.size ? elements : elements.slice(from - first, [to - from]);
  parameterValue(parameter).paste(part, from - begin + (source.first ?? 0));
}

function parameterValue(parameter: Parameter): Tensor<WideDType> {
  return wideOf("loadCausalLM: a parameter", parameter.value);
}
