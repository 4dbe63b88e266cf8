/** Weights in the form that `lockstep quantize` writes: as sources of a conversion, and as what it makes of weights. */
import type { Backend } from "../../../backends/backend.js";
import { BLOCK_FORMAT_NAMES, type BlockFormatName, hasGivenScale } from "../../../formats/block.js";
import { Holder } from "../../../io/holder.js";
import { allMembers, quantizedPlans, readQuantized } from "../../../io/quantized/quantized-file.js";
import { formatRecipe, type Recipe, recipeKey } from "../../../io/quantized/recipe.js";
import { fromBytes } from "../../../ops/create.js";
import { dequantize } from "../../../ops/quantize/dequantize.js";
import { quantizerNamed } from "../../../quantizers/named.js";
import { requireQuantizable } from "../../../tensor/geometry.js";
import type { QuantizedTensor } from "../../../tensor/quantized.js";
import { Scope } from "../../../tensor/scope.js";
import { asMatrix, type Shape } from "../../../tensor/shape.js";
import { bytesOf } from "../../bytes.js";
import type { OwnWeight } from "../stored/own.js";
import { matricesOf } from "../stored/weight.js";
import type { Output } from "./output.js";
import type { ConvertedWeight } from "./plan.js";
import { notFinite, type Source, type SourceRows } from "./source.js";
import { Changes } from "./wide.js";

const PREFIX = "lockstep-";
const ROW_STEP = 128;
const SETTINGS = { rowwise: true, columnwise: false, scaleLayout: "logical" } as const;

/** The quantizers whose form weights can be converted to; those that are given a scale need a history of amaxes. */
const OWN_QUANTIZERS = BLOCK_FORMAT_NAMES.filter((quantizer) => !hasGivenScale({ quantizer }));

/** The targets by their names. */
export const OWN_TARGETS: ReadonlyMap<string, BlockFormatName> = new Map(
  OWN_QUANTIZERS.map((name) => [PREFIX + name, name]),
);

/** The names of all tensors of a weight in a file. */
export function ownParts({ name, recipe }: OwnWeight): readonly string[] {
  return quantizedPlans(name, recipe).map(({ name: part }) => part);
}

/** A weight that `lockstep quantize` wrote, by its values in f32: of the rowwise copy if there is one. Reads it whole. */
export function ownSource({ name, recipe, shard }: OwnWeight, backend: () => Promise<Backend>): Source {
  const { shape, usage } = recipe;
  async function* rows(): AsyncGenerator<SourceRows, undefined> {
    using holder = new Holder();
    const direction = usage.includes("rowwise") ? "rowwise" : "columnwise";
    const reading = { backend: await backend(), file: shard, holder };
    yield* rowsOf(shape, valuesOf(await readQuantized(reading, name, recipe, direction)));
  }
  return { name, shape, dtype: "f32", rows };
}

function valuesOf(quantized: QuantizedTensor): Float32Array {
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
      yield { rows: count, columns, bytes: bytesOf(values), values };
    }
}

/** Why a weight cannot have the form of a quantizer; undefined if it can. */
export function whyNotOwn(quantizer: BlockFormatName, shape: Shape): string | undefined {
  if (shape.length < 2 || shape.some((size) => size === 0))
    return `its shape is [${shape}]; a matrix is needed`;
  try {
    requireQuantizable("convert", quantizerNamed(quantizer, SETTINGS).spec, asMatrix(shape)[1]);
    return undefined;
  } catch (error) {
    return error instanceof Error ? error.message.replace(/^convert: /, "") : String(error);
  }
}

/** The conversion of a weight by a quantizer of this library with its default settings. The weight is held in memory. */
export function ownStep(
  source: Source,
  quantizer: BlockFormatName,
  backend: () => Promise<Backend>,
): ConvertedWeight {
  const { name, shape, dtype } = source;
  const { spec } = quantizerNamed(quantizer, SETTINGS);
  const recipe: Recipe = { spec, shape, dtype, scales: "logical", usage: ["rowwise"] };
  return {
    kind: "convert",
    name,
    way: "quantized",
    outputs: quantizedPlans(name, recipe),
    metadata: { [recipeKey(name)]: formatRecipe(recipe) },
    write: async (output) => quantizeOwn(await backend(), source, recipe, output),
  };
}

async function quantizeOwn(
  backend: Backend,
  source: Source,
  recipe: Recipe,
  output: Output,
): Promise<Changes> {
  const { name } = source;
  const pieces: Uint8Array[] = [];
  for await (const { bytes, values } of source.rows()) {
    if (!values.every(Number.isFinite)) throw notFinite(name);
    pieces.push(bytes.slice());
  }
  const { members, values } = quantizedBytes(backend, name, recipe, Buffer.concat(pieces));
  for (const plan of quantizedPlans(name, recipe))
    await output.append(plan, members.get(plan.name) ?? new Uint8Array());
  const changes = new Changes();
  let at = 0;
  for await (const rows of source.rows())
    for (const value of rows.values) changes.add(value, values[at++] as number);
  return changes;
}

/** The bytes of the tensors of a quantized weight by their names, and its values. */
function quantizedBytes(
  backend: Backend,
  name: string,
  recipe: Recipe,
  bytes: Uint8Array,
): { readonly members: ReadonlyMap<string, Uint8Array>; readonly values: Float32Array } {
  using _scope = new Scope();
  const quantizer = quantizerNamed(recipe.spec.quantizer, SETTINGS);
  const made = quantizer.quantize(fromBytes(backend, bytes, recipe.shape, recipe.dtype));
  const members = allMembers(name, recipe).flatMap(({ field, direction, plan }) => {
    const member = made.copy(direction)[field];
    return member ? [[plan.name, bytesOf(member.dataSync()).slice()] as const] : [];
  });
  return { members: new Map(members), values: valuesOf(made) };
}
