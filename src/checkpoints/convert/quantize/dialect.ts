/** Quantizes a weight by the quantizer of a dialect, a few rows at a time, and counts the changes. */

import type { Backend } from "../../../backends/backend.js";
import { type FileDType, fileBytes, fileDType } from "../../../io/dtypes.js";
import { sixBitBytes } from "../../../io/six-bit.js";
import { castTo } from "../../../ops/cast/cast.js";
import { fromBytes, tensor } from "../../../ops/create.js";
import { dequantize } from "../../../ops/quantize/dequantize.js";
import { quantize } from "../../../ops/quantize/quantize.js";
import type { Quantizer } from "../../../quantizers/quantizer.js";
import { asBytes } from "../../../tensor/data.js";
import { Scope } from "../../../tensor/scope.js";
import { hasType, memoryOfTensor, type Tensor } from "../../../tensor/tensor.js";
import type { Kernels } from "../../kernels/kernels.js";
import { BYTES } from "../../stored/byte-scales.js";
import { CODE_TYPES } from "../../stored/code-types.js";
import { conventionOf } from "../../stored/conventions.js";
import { type GlobalScale, scaleOf, toFloats } from "../../stored/scales.js";
import { matricesOf } from "../../stored/weight.js";
import { amaxOf, type Source, type SourceRows } from "../../values/source.js";
import { Changes } from "../changes/changes.js";
import { type BlockScales, compareRows } from "../changes/compare.js";
import type { Target } from "../targets/table.js";
import { inFileLayout, type OutputTensors } from "../targets/tensors.js";
import type { TensorAppender } from "../tensor-appender.js";

/** The backend, kernels, quantizer and target of a conversion. */
export interface QuantizeResources {
  readonly backend: Backend;
  readonly kernels: Kernels;
  readonly quantizer: Quantizer;
  readonly target: Target;
}

/** Quantized rows: codes in their order in memory, block scales as bytes of type `dtype`, and the global scale. */
interface QuantizedRows {
  readonly codes: Uint8Array;
  readonly scales: Uint8Array;
  readonly dtype: FileDType;
  readonly global: number | undefined;
}

const LOGICAL = { usage: { rowwise: true, columnwise: false }, scaleLayout: "logical" } as const;

/** The bytes of a tensor of codes. They lie in kernel memory if the backend can copy them there. */
function codesOf(kernels: Kernels, data: Tensor): Uint8Array {
  const memory = memoryOfTensor(data);
  if (!memory.readInto) return asBytes(data.dataSync());
  const { bytes } = kernels.buffer("codes", data.byteLength);
  memory.readInto(data.address, bytes);
  return bytes;
}

function quantizeRows(
  { backend, kernels, quantizer, target }: QuantizeResources,
  { rows, columns, bytes }: SourceRows,
  dtype: Source["dtype"],
  amax: number | undefined,
): QuantizedRows {
  using _scope = new Scope();
  const x = fromBytes(backend, bytes, [rows, columns], dtype);
  const layout = { spec: quantizer.spec, ops: quantizer, ...LOGICAL };
  const inputs = amax === undefined ? {} : { amax: tensor(backend, new Float32Array([amax])) };
  const quantized = quantize(x, layout, inputs).copy("rowwise");
  const { data, scaleInv } = quantized;
  const typed = target.scale === "source" && hasType(scaleInv, "f32") ? castTo(scaleInv, dtype) : scaleInv;
  const scales = asBytes(typed.dataSync());
  return {
    codes: codesOf(kernels, data),
    scales,
    dtype: fileDType(typed.dtype),
    global: quantized.amax?.dataSync()[0],
  };
}

/** The effective scale of each block: its block scale multiplied or divided by the global scale. */
function scalesOf(
  { scales, dtype }: QuantizedRows,
  global: Pick<GlobalScale, "global" | "isDivisor">,
): BlockScales {
  const floats = (bytes: Uint8Array): Float32Array =>
    toFloats(dtype, bytes).map((value) => scaleOf(global, value));
  return fileBytes(dtype, [1]) === 1 ? { values: scales, table: floats(BYTES) } : { values: floats(scales) };
}

/**
 * Quantizes a weight and writes its tensors. If scales depend on amaxes, `amaxes` is required. If each matrix has a global scale,
 * it has one amax per matrix. Otherwise it has one amax, over the weight or over all weights with a common global scale. Throws
 * `FileError` for NaN and infinity.
 */
export async function quantizeWeight(
  resources: QuantizeResources,
  source: Source,
  { codes, scale, global, globals, blocks, type }: OutputTensors,
  amaxes: readonly number[] | undefined,
  output: TensorAppender,
): Promise<Changes> {
  const { kernels, target } = resources;
  const changes = new Changes();
  const packsSix = CODE_TYPES[type].bits === 6;
  const isDivisor = conventionOf(target.convention).global?.role === "divisor";
  const [, height] = matricesOf(source.shape);
  let row = 0;
  for await (const rows of source.rows(kernels)) {
    const first = row === 0;
    const beginsMatrix = globals > 1 ? row % height === 0 : first;
    const amax = amaxes?.[globals > 1 ? Math.floor(row / height) : 0];
    // with an amax, amaxesOf has already thrown for NaN and infinity
    if (amax === undefined) amaxOf(kernels, source.name, rows);
    const quantized = quantizeRows(resources, rows, source.dtype, amax);
    const scales = scalesOf(quantized, { global: quantized.global ?? 1, isDivisor });
    compareRows(kernels, { blocks, type }, rows, quantized.codes, scales, changes);
    await output.append(codes, packsSix ? sixBitBytes(source.name, quantized.codes) : quantized.codes);
    if (first || blocks.kind !== "whole")
      await output.append(scale, inFileLayout(kernels, target, quantized.scales, blocks.grid[1]));
    if (beginsMatrix && global) await output.append(global, asBytes(Float32Array.of(quantized.global ?? 1)));
    row += rows.rows;
  }
  return changes;
}

/** The side of a matrix. The matrix consists of full blocks under every quantizer. */
const SIDE = 128;

/**
 * Returns the reason why finite values become NaN or infinite under a quantizer: its rule fails for zeros, or its scales lack
 * range.
 */
export function whyNotFinite(backend: Backend, quantizer: Quantizer): string {
  using _scope = new Scope();
  const zeros = tensor(backend, new Float32Array(SIDE * SIDE), [SIDE, SIDE]);
  const values = dequantize(quantizer.quantize(zeros), "f32").dataSync();
  return values.every((value) => value === 0)
    ? "scales of its type cannot hold the largest magnitudes"
    : "its rule divides by the largest magnitude of a block, and 0 / 0 is NaN where all of a block is 0";
}
