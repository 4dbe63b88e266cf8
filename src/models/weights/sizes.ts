/** The sizes of stored matrices of decoder layers, and the errors of their forms. */
import type { WeightChanges } from "../../checkpoints/convert/changes/weight-changes.js";
import { storedBytes } from "../../checkpoints/stored-bytes.js";
import type { Survey } from "../../checkpoints/survey.js";
import type { Module } from "../../modules/module.js";
import { elementCount } from "../../tensor/shape.js";
import type { WeightNames } from "./sources.js";
import type { StoredValues } from "./stored.js";

/** The size of a tensor of a decoder layer that has a matrix, or a stack of matrices. */
export interface StoredSize {
  /** The name of its tensor. */
  readonly tensor: string;
  /** The index of the layer. */
  readonly layer: number;
  readonly elements: number;
  /** The bytes of its codes, scales and global scales, or of its values. */
  readonly bytes: number;
}

const LAYER = /^model\.layers\.(\d+)\./;

/** The sizes of the matrices of decoder layers, each tensor once. `stored`: the values of the survey's tensors. */
export function sizesOf(
  survey: Survey,
  stored: ReadonlyMap<string, StoredValues>,
  model: Module,
  { sourcesOf }: WeightNames,
): readonly StoredSize[] {
  const bytesOf = storedBytes(survey);
  const sizes = new Map<string, StoredSize>();
  for (const [name, { shape }] of model.namedParameters()) {
    const layer = LAYER.exec(name)?.[1];
    if (layer === undefined || shape.length < 2) continue;
    for (const { tensor } of sourcesOf(name)) {
      const elements = elementCount(stored.get(tensor)?.shape ?? []);
      sizes.set(tensor, { tensor, layer: Number(layer), elements, bytes: bytesOf.get(tensor) ?? 0 });
    }
  }
  return [...sizes.values()];
}

/** The relative root mean square error of the changed weights of each layer; 0 for a layer without any. */
export function layerErrorsOf(
  layers: number,
  sizes: readonly StoredSize[],
  changes: ReadonlyMap<string, WeightChanges>,
): readonly number[] {
  const sums = Array.from({ length: layers }, () => ({ noise: 0, signal: 0 }));
  for (const { tensor, layer } of sizes) {
    const [sum, change] = [sums[layer], changes.get(tensor)];
    if (!sum || !change) continue;
    sum.noise += change.noise;
    sum.signal += change.signal;
  }
  return sums.map(({ noise, signal }) => (noise === 0 ? 0 : Math.sqrt(noise / signal)));
}
