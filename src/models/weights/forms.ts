/** The values that weights have in another form, which is computed in memory. */
import type { Backend } from "../../backends/backend.js";
import { planConversion } from "../../checkpoints/convert/plan/plan.js";
import type { ConvertedWeight } from "../../checkpoints/convert/plan/steps.js";
import type { NamedTarget } from "../../checkpoints/convert/targets/named.js";
import { TensorAppender } from "../../checkpoints/convert/tensor-appender.js";
import { recognizeElementwise } from "../../checkpoints/recognize/elementwise-weights.js";
import { conventionOf } from "../../checkpoints/stored/conventions.js";
import type { CheckpointFiles } from "../../checkpoints/stored/open.js";
import { transposedShape } from "../../checkpoints/stored/transpose.js";
import { FileError } from "../../errors.js";
import { fileBytes } from "../../io/dtypes.js";
import { MemorySource } from "../../io/source.js";
import { type StoredValues, storedValues } from "./stored.js";

/**
 * Returns `stored` with the values that each weight has after `convertCheckpoint` to `form`. Codes and scales of one weight at a
 * time are in memory. Throws `FileError` as `convertCheckpoint` does.
 */
export async function valuesInForm(
  files: CheckpointFiles,
  stored: ReadonlyMap<string, StoredValues>,
  form: NamedTarget,
  backend: Backend,
): Promise<ReadonlyMap<string, StoredValues>> {
  const { shards } = await planConversion(files, { target: form, backend: async () => backend });
  const all = new Map(stored);
  for (const step of shards.flatMap(({ steps }) => steps)) {
    const values = step.kind === "convert" ? stored.get(step.name) : undefined;
    if (step.kind !== "convert" || !values) continue;
    all.set(step.name, {
      ...orderAfter(values, form),
      read: async (...args) => (await converted(files.path, step, form)).read(...args),
    });
  }
  return all;
}

/** The shape and the order of elements after a conversion: codes keep their order, and plain values get the order of the form. */
function orderAfter(
  { shape, inWideOrder }: StoredValues,
  { wide, dialectTarget }: NamedTarget,
): Pick<StoredValues, "shape" | "inWideOrder"> {
  const transposes =
    dialectTarget !== undefined && conventionOf(dialectTarget.convention).transposedWide === true;
  const after = wide !== undefined || (inWideOrder && !transposes);
  return { shape: after === inWideOrder ? shape : transposedShape(shape), inWideOrder: after };
}

/** The values of a converted weight, whose tensors are in memory. */
async function converted(path: string, step: ConvertedWeight, form: NamedTarget): Promise<StoredValues> {
  const tensors = step.outputs.map((plan) => ({
    ...plan,
    bytes: new Uint8Array(fileBytes(plan.dtype, plan.shape)),
  }));
  const byName = new Map(tensors.map((each) => [each.name, each.bytes]));
  const put = async (name: string, bytes: Uint8Array, at = 0): Promise<void> =>
    byName.get(name)?.set(bytes, at);
  await step.write(new TensorAppender(put, () => {}));
  const shard = new MemorySource(path, tensors, step.metadata);
  const convention = form.dialectTarget?.convention;
  const container = convention && conventionOf(convention).container;
  const checkpoint = {
    shards: [shard],
    tensors: new Map([...shard.tensors].map(([name, entry]) => [name, { entry, shard }])),
    metadata: shard.metadata,
    ...(container ? { container } : {}),
  };
  const { recognized } = await recognizeElementwise(checkpoint, undefined, convention);
  const values = storedValues(recognized).get(step.name);
  if (values) return values;
  throw new FileError(`${path}: tensor "${step.name}": cannot be read as ${form.name}`);
}
