/** Reads the values of weights that this library quantized. */
import type { Backend } from "../../backends/backend.js";
import { openBackend } from "../../backends/open.js";
import { Holder } from "../../io/holder.js";
import { quantizedPlans, readQuantized } from "../../io/quantized/quantized-file.js";
import { dequantize } from "../../ops/quantize/dequantize.js";
import { asBytes } from "../../tensor/data.js";
import type { QuantizedTensor } from "../../tensor/quantized.js";
import { Scope } from "../../tensor/scope.js";
import { rowRanges } from "../stored/code-rows.js";
import type { LockstepWeight } from "../stored/lockstep-weights.js";
import { matricesOf } from "../stored/weight.js";
import type { WeightRows } from "./rows.js";
import type { Source, SourceRows } from "./source.js";

/** The names of all tensors of a weight in its file. */
export function lockstepTensorNames({ name, recipe }: LockstepWeight): readonly string[] {
  return quantizedPlans(name, recipe).map(({ name: tensor }) => tensor);
}

/** A weight that this library quantized, as a source of f32 values. All values are in memory at once. */
export function lockstepSource(weight: LockstepWeight, backend: () => Promise<Backend>): Source {
  const { name, recipe } = weight;
  async function* rows(): AsyncGenerator<SourceRows, undefined> {
    const weightValues = await readValues(weight, await backend());
    for (const { rows, columns, values } of rowsOf(weight, weightValues))
      yield { rows, columns, bytes: asBytes(values), type: "f32", values };
  }
  return { name, shape: recipe.shape, dtype: "f32", rows };
}

/** Yields the f32 values of a weight. Opens a backend for the computation. All values are in memory at once. */
export async function* lockstepRows(weight: LockstepWeight): AsyncGenerator<WeightRows, undefined> {
  const backend = await openBackend("wasm", { threads: 1 });
  try {
    for (const { values, ...rows } of rowsOf(weight, await readValues(weight, backend)))
      yield { ...rows, values: Float64Array.from(values) };
  } finally {
    await backend.dispose();
  }
}

/** Reads the f32 values of the rowwise copy, or of the columnwise copy if there is no rowwise copy. */
async function readValues({ name, recipe, shard }: LockstepWeight, backend: Backend): Promise<Float32Array> {
  using holder = new Holder();
  const direction = recipe.usage.includes("rowwise") ? "rowwise" : "columnwise";
  return dequantizedValues(await readQuantized({ backend, file: shard, holder }, name, recipe, direction));
}

/** The values of a quantized tensor as f32. */
export function dequantizedValues(quantized: QuantizedTensor): Float32Array {
  using _scope = new Scope();
  return dequantize(quantized, "f32").dataSync().slice() as Float32Array;
}

/** Splits the values of a weight into pieces. No piece has rows of two matrices. A weight without elements has no pieces. */
function* rowsOf(
  { recipe: { shape } }: LockstepWeight,
  values: Float32Array,
): Generator<Omit<WeightRows, "values"> & { readonly values: Float32Array }, undefined> {
  const [, height] = matricesOf(shape);
  for (const { matrix, row, rows, columns } of rowRanges(shape, 32)) {
    const first = matrix * height + row;
    yield { row: first, rows, columns, values: values.subarray(first * columns, (first + rows) * columns) };
  }
}
