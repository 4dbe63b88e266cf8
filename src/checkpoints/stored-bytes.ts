/** The bytes that a checkpoint needs for each weight. */
import { fileBytes } from "../io/dtypes.js";
import { quantizedPlans } from "../io/quantized/quantized-file.js";
import { packedAs } from "./gguf/file.js";
import type { StoredTensor } from "./stored/tensors.js";
import type { Survey } from "./survey.js";

/** The bytes of each weight and plain tensor, by name. */
export function storedBytes({ plain, storedWeights, lockstepWeights }: Survey): ReadonlyMap<string, number> {
  const sizeOf = ({ entry, shard }: StoredTensor): number =>
    packedAs(shard, entry.name)?.bytes ?? entry.end - entry.begin;
  const sum = (sizes: readonly number[]): number => sizes.reduce((total, each) => total + each, 0);
  return new Map([
    ...plain.map((stored) => [stored.entry.name, sizeOf(stored)] as const),
    ...storedWeights.map(({ name, codes, scale, global, zeros, order, factors }) => {
      const parts = [codes, scale, global, zeros, order, factors];
      return [name, sum(parts.flatMap((part) => (part ? [sizeOf(part)] : [])))] as const;
    }),
    ...lockstepWeights.map(({ name, recipe }) => {
      const plans = quantizedPlans(name, recipe);
      return [name, sum(plans.map(({ dtype, shape }) => fileBytes(dtype, shape)))] as const;
    }),
  ]);
}
