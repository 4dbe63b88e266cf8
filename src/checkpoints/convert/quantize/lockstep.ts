/** Converts weights to the form that `lockstep quantize` writes. */
import type { Backend } from "../../../backends/backend.js";
import type { BlockFormatName } from "../../../formats/block.js";
import { allMembers, quantizedPlans } from "../../../io/quantized/quantized-file.js";
import { formatRecipe, type Recipe, recipeKey } from "../../../io/quantized/recipe.js";
import { fromBytes } from "../../../ops/create.js";
import { quantizerNamed } from "../../../quantizers/named.js";
import { asBytes } from "../../../tensor/data.js";
import { requireQuantizable } from "../../../tensor/geometry.js";
import { Scope } from "../../../tensor/scope.js";
import { asMatrix, elementCount, type Shape, storageBits } from "../../../tensor/shape.js";
import type { Kernels } from "../../kernels/kernels.js";
import { dequantizedValues } from "../../values/lockstep.js";
import { amaxOf, numbersOf, type Source } from "../../values/source.js";
import { Changes } from "../changes/changes.js";
import type { ConvertedWeight } from "../plan/steps.js";
import type { TensorAppender } from "../tensor-appender.js";

const SETTINGS = { rowwise: true, columnwise: false, scaleLayout: "logical" } as const;

/** Returns the reason why a weight cannot have the form of a quantizer; undefined if it can. */
export function whyNotLockstep(quantizer: BlockFormatName, shape: Shape): string | undefined {
  if (shape.length < 2 || shape.some((size) => size === 0))
    return `its shape is [${shape}]; a matrix is needed`;
  try {
    requireQuantizable("convert", quantizerNamed(quantizer, SETTINGS).spec, asMatrix(shape)[1]);
    return undefined;
  } catch (error) {
    return error instanceof Error ? error.message.replace(/^convert: /, "") : String(error);
  }
}

/** Functions that open the backend and the kernels at the first conversion. */
interface Resources {
  readonly backend: () => Promise<Backend>;
  readonly kernels: () => Promise<Kernels>;
}

/** Plans the conversion of a weight by a quantizer of this library with its default settings. The weight is held in memory. */
export function lockstepStep(
  source: Source,
  quantizer: BlockFormatName,
  { backend, kernels }: Resources,
): ConvertedWeight {
  const { name, shape, dtype } = source;
  const { spec } = quantizerNamed(quantizer, SETTINGS);
  const recipe: Recipe = { spec, shape, dtype, scales: "logical", usage: ["rowwise"] };
  return {
    kind: "convert",
    name,
    method: "quantized",
    outputs: quantizedPlans(name, recipe),
    metadata: { [recipeKey(name)]: formatRecipe(recipe) },
    write: async (output) => quantizeWithRecipe(await backend(), await kernels(), source, recipe, output),
  };
}

async function quantizeWithRecipe(
  backend: Backend,
  kernels: Kernels,
  source: Source,
  recipe: Recipe,
  output: TensorAppender,
): Promise<Changes> {
  const { name } = source;
  const bytes = new Uint8Array((elementCount(source.shape) * storageBits(source.dtype)) / 8);
  let end = 0;
  for await (const rows of source.rows(kernels)) {
    amaxOf(kernels, name, rows);
    bytes.set(rows.bytes, end);
    end += rows.bytes.length;
  }
  const { members, values } = quantizedBytes(backend, name, recipe, bytes);
  for (const plan of quantizedPlans(name, recipe))
    await output.append(plan, members.get(plan.name) ?? new Uint8Array());
  const changes = new Changes();
  let offset = 0;
  for await (const rows of source.rows(kernels))
    for (const value of numbersOf(rows)) changes.add(value, values[offset++] as number);
  return changes;
}

/** Quantizes a weight; returns the bytes of its tensors by name, and its values. */
function quantizedBytes(
  backend: Backend,
  name: string,
  recipe: Recipe,
  bytes: Uint8Array,
): { readonly members: ReadonlyMap<string, Uint8Array>; readonly values: Float32Array } {
  using _scope = new Scope();
  const quantizer = quantizerNamed(recipe.spec.quantizer, SETTINGS);
  const quantized = quantizer.quantize(fromBytes(backend, bytes, recipe.shape, recipe.dtype));
  const members = allMembers(name, recipe).flatMap(({ field, direction, plan }) => {
    const member = quantized.copy(direction)[field];
    return member ? [[plan.name, asBytes(member.dataSync()).slice()] as const] : [];
  });
  return { members: new Map(members), values: dequantizedValues(quantized) };
}
