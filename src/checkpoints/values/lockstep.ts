/** Weights in the form that `lockstep quantize` writes, as sources of a conversion. */
import type { Backend } from "../../backends/backend.js";
import { Holder } from "../../io/holder.js";
import { quantizedPlans, readQuantized } from "../../io/quantized/quantized-file.js";
import { dequantize } from "../../ops/quantize/dequantize.js";
import { asBytes } from "../../tensor/data.js";
import type { QuantizedTensor } from "../../tensor/quantized.js";
import { Scope } from "../../tensor/scope.js";
import type { Shape } from "../../tensor/shape.js";
import type { LockstepWeight } from "../stored/lockstep-weights.js";
import { matricesOf } from "../stored/weight.js";
import type { Source, SourceRows } from "./source.js";

const ROW_STEP = 128;

/** The names of all tensors of a weight in a file. */
export function lockstepTensorNames({ name, recipe }: LockstepWeight): readonly string[] {
  return quantizedPlans(name, recipe).map(({ name: part }) => part);
}

/** A weight that `lockstep quantize` wrote, by its values in f32: of the rowwise copy if there is one. Reads it whole. */
export function lockstepSource(
  { name, recipe, shard }: LockstepWeight,
  backend: () => Promise<Backend>,
): Source {
  const { shape, usage } = recipe;
  async function* rows(): AsyncGenerator<SourceRows, undefined> {
    using holder = new Holder();
    const direction = usage.includes("rowwise") ? "rowwise" : "columnwise";
    const reading = { backend: await backend(), file: shard, holder };
    yield* rowsOf(shape, dequantizedValues(await readQuantized(reading, name, recipe, direction)));
  }
  return { name, shape, dtype: "f32", rows };
}

/** The values of a quantized tensor as f32. */
export function dequantizedValues(quantized: QuantizedTensor): Float32Array {
  using _scope = new Scope();
  return dequantize(quantized, "f32").dataSync().slice() as Float32Array;
}

function* rowsOf(shape: Shape, all: Float32Array): Generator<SourceRows, undefined> {
  const [matrices, height, columns] = matricesOf(shape);
  for (let matrix = 0; matrix < matrices; matrix++)
    for (let row = 0; row < height; row += ROW_STEP) {
      const count = Math.min(ROW_STEP, height - row);
      const at = (matrix * height + row) * columns;
      const values = all.subarray(at, at + count * columns);
      yield { rows: count, columns, bytes: asBytes(values), type: "f32", values };
    }
}
