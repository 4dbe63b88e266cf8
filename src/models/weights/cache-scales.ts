/** The scales of cached keys and values in a checkpoint. */
import type { Backend } from "../../backends/backend.js";
import { FileError } from "../../errors.js";
import { elementCount } from "../../tensor/shape.js";
import type { CacheScales } from "../cache-options.js";
import type { StoredValues } from "./stored.js";

/** The names of the scales of a layer: of compressed-tensors, of ModelOpt, and of older files of vLLM with one scale for both. */
const NAMES = {
  k: ["k_scale", "k_proj.k_scale", "attn.k_scale", "kv_scale"],
  v: ["v_scale", "v_proj.v_scale", "attn.v_scale", "kv_scale"],
} as const;

/**
 * Reads the scales of all layers. Returns undefined if no layer has a scale. A checkpoint with scales of only some layers has
 * been refused before. Throws `FileError` for a tensor of several numbers, and for a number that is not above 0.
 */
export async function cacheScalesOf(
  path: string,
  backend: Backend,
  stored: ReadonlyMap<string, StoredValues>,
  layers: number,
): Promise<CacheScales | undefined> {
  let count = 0;
  const scaleOf = async (layer: number, names: readonly string[]): Promise<number> => {
    const all = names.map((name) => `model.layers.${layer}.self_attn.${name}`);
    const name = all.find((each) => stored.has(each));
    if (name === undefined) return 1;
    count++;
    return scaleIn(path, backend, name, stored.get(name) as StoredValues);
  };
  const scales: { readonly k: number[]; readonly v: number[] } = { k: [], v: [] };
  for (let layer = 0; layer < layers; layer++)
    for (const which of ["k", "v"] as const) scales[which].push(await scaleOf(layer, NAMES[which]));
  return count === 0 ? undefined : scales;
}

async function scaleIn(
  path: string,
  backend: Backend,
  name: string,
  { shape, read }: StoredValues,
): Promise<number> {
  if (elementCount(shape) !== 1)
    throw new FileError(
      `${path}: tensor "${name}" is [${shape}]; a cache has one scale for all heads of a layer`,
    );
  let scale = Number.NaN;
  await read(backend, "f32", (_, elements) => {
    scale = Number(elements.dataSync()[0]);
  });
  if (scale > 0 && Number.isFinite(scale) && Number.isFinite(Math.fround(1 / scale))) return scale;
  throw new FileError(`${path}: tensor "${name}" is ${scale}; a scale is above 0 and finite`);
}
