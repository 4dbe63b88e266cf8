/** The recorded results of transformers with small models (scripts/witness/models/record.py). */
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { SafetensorsFile } from "../../../src/io/safetensors.js";

const FOLDER = new URL("../../vectors/models", import.meta.url).pathname;

/** The folders of models, by their names. */
export const WITNESS_NAMES: readonly string[] = readdirSync(FOLDER, { withFileTypes: true })
  .filter((entry) => entry.isDirectory())
  .map(({ name }) => name)
  .toSorted();

/** A recorded model. Logits are rows of `vocabulary` elements, one for each token of the prompt. */
export interface Witness {
  /** The folder of the model. */
  readonly path: string;
  readonly tokens: Int32Array;
  readonly vocabulary: number;
  /** The logits that were computed in f32. */
  readonly f32: Float32Array;
  /** The logits that were computed in f64. */
  readonly f64: Float64Array;
  /** The tokens that follow the prompt, each the one with the largest logit. */
  readonly greedy: Int32Array;
}

/** The path of a recorded file or folder. */
export function witnessPath(name: string): string {
  return join(FOLDER, name);
}

/** Reads the recorded results of a model. */
export async function readWitness(name: string): Promise<Witness> {
  const path = witnessPath(name);
  const tensors = await readTensors(join(path, "witness.safetensors"));
  const [length, vocabulary] = tensors.shapeOf("logits.f64") as [number, number];
  const tokens = tensors.i32("tokens");
  if (tokens.length !== length)
    throw new Error(`${name}: ${tokens.length} tokens and ${length} rows of logits`);
  return {
    ...{ path, tokens, vocabulary },
    ...{ f32: tensors.f32("logits.f32"), f64: tensors.f64("logits.f64"), greedy: tensors.i32("greedy") },
  };
}

/** The tensors of a safetensors file as arrays. */
export interface RecordedTensors {
  readonly shapeOf: (name: string) => readonly number[];
  readonly i32: (name: string) => Int32Array;
  readonly f32: (name: string) => Float32Array;
  readonly f64: (name: string) => Float64Array;
}

/** Reads all tensors of a safetensors file. */
export async function readTensors(path: string): Promise<RecordedTensors> {
  const file = await SafetensorsFile.open(path);
  try {
    const recordings = new Map<
      string,
      { readonly dtype: string; readonly shape: readonly number[]; readonly bytes: Uint8Array }
    >();
    for (const [name, entry] of file.tensors)
      recordings.set(name, { dtype: entry.dtype, shape: entry.shape, bytes: await file.read(entry) });
    const find = (name: string, dtype?: string) => {
      const tensor = recordings.get(name);
      if (!tensor || (dtype !== undefined && tensor.dtype !== dtype))
        throw new Error(`${path}: no ${dtype ?? ""} tensor "${name}"`);
      return tensor;
    };
    const buffer = (name: string, dtype: string): ArrayBuffer =>
      Uint8Array.from(find(name, dtype).bytes).buffer;
    return {
      shapeOf: (name) => find(name).shape,
      i32: (name) => new Int32Array(buffer(name, "I32")),
      f32: (name) => new Float32Array(buffer(name, "F32")),
      f64: (name) => new Float64Array(buffer(name, "F64")),
    };
  } finally {
    await file.close();
  }
}

/** The index of the largest element, the lowest among equal ones, and its distance to the second largest. */
export function topOf(row: ArrayLike<number>): { readonly index: number; readonly gap: number } {
  let index = 0;
  let runnerUp = Number.NEGATIVE_INFINITY;
  for (let i = 1; i < row.length; i++) {
    const value = row[i] as number;
    const best = row[index] as number;
    if (value > best) {
      runnerUp = best;
      index = i;
    } else if (value > runnerUp) runnerUp = value;
  }
  return { index, gap: (row[index] as number) - runnerUp };
}
