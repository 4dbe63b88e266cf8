/** The weights of a model by decoder layers. */
import type { Checkpoint, MeasuredWeight, ScaleOctaves } from "lockstep/checkpoints/portable";

/** The index of a decoder layer in the name of a weight, as Hugging Face, llama.cpp and older models have it. */
const LAYER = /(?:^|\.)(?:layers|blk|h|blocks)\.(\d+)\./;

/** The decoder layer of a weight; undefined for embeddings and the output layer. */
export function layerOf(name: string): number | undefined {
  const index = LAYER.exec(name)?.[1];
  return index === undefined ? undefined : Number(index);
}

const WIDE = new Set(["F32", "BF16", "F16"]);

/** The number of weights that `measureForm` yields for a checkpoint. */
export function countOfMatrices({ weights, lockstepWeights, unquantized, tensors }: Checkpoint): number {
  const plain = unquantized.filter((name) => {
    const entry = tensors.get(name);
    return entry !== undefined && WIDE.has(entry.dtype) && entry.shape.length >= 2;
  });
  return weights.size + lockstepWeights.size + plain.length;
}

/** The relative root mean square error of the weights of each layer that the form changes, in the order of layers. */
export function layerErrors(
  weights: readonly MeasuredWeight[],
): readonly (readonly [layer: number, error: number])[] {
  const sums = new Map<number, { noise: number; signal: number }>();
  for (const { name, converted } of weights) {
    const layer = layerOf(name);
    if (layer === undefined || !converted) continue;
    const sum = sums.get(layer) ?? { noise: 0, signal: 0 };
    sums.set(layer, { noise: sum.noise + converted.noise, signal: sum.signal + converted.signal });
  }
  return [...sums]
    .toSorted(([a], [b]) => a - b)
    .map(([layer, { noise, signal }]) => [layer, noise === 0 ? 0 : Math.sqrt(noise / signal)]);
}

/** The bits per element of the decoder layers, as they are stored and in the form. */
export function meanBits(weights: readonly MeasuredWeight[]): {
  readonly stored: number;
  readonly form: number;
} {
  let [elements, stored, form] = [0, 0, 0];
  for (const { name, shape, stored: before, converted } of weights) {
    if (layerOf(name) === undefined) continue;
    const count = shape.reduce((product, size) => product * size, 1);
    elements += count;
    stored += count * before.bits;
    form += count * (converted ?? before).bits;
  }
  return elements === 0 ? { stored: 0, form: 0 } : { stored: stored / elements, form: form / elements };
}

/** The scales of a weight in a sentence. */
export function scalesText({ first, counts, others }: ScaleOctaves): string {
  const count = counts.reduce((sum, each) => sum + each, 0);
  const rest = others > 0 ? `, ${others} of ${count + others} zero, negative or not finite` : "";
  if (count === 0) return `no positive scale${rest}`;
  const largest = counts.reduce((best, each, i) => (each > (counts[best] as number) ? i : best), 0);
  return `2^${first} to 2^${first + counts.length}, most from 2^${first + largest}${rest}`;
}
