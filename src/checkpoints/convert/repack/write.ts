/** Writes the codes and repacked scales of a quantized weight under another convention. */
import { FileError } from "../../../errors.js";
import { asBytes } from "../../../tensor/data.js";
import { packFour } from "../../../tensor/packed.js";
import { elementCount } from "../../../tensor/shape.js";
import type { OnCodes } from "../../judge/statistics/code-sums.js";
import type { KernelBuffer, Kernels } from "../../kernels/kernels.js";
import { codeRows } from "../../stored/code-rows.js";
import { CODE_TYPES } from "../../stored/code-types.js";
import { matricesOf, type QuantizedWeight } from "../../stored/weight.js";
import { Changes } from "../changes/changes.js";
import { compareRows } from "../changes/compare.js";
import type { JudgeWeight } from "../soundness.js";
import type { Target } from "../targets/table.js";
import { inFileLayout, type OutputTensors } from "../targets/tensors.js";
import type { TensorAppender } from "../tensor-appender.js";
import { changesByTallies } from "./changes.js";
import { repackScales } from "./scales.js";

/** Returns a function that appends codes in the packing of the output: unpacked 4-bit codes are packed again. */
function codeAppender(
  { unpacked, type }: QuantizedWeight,
  { codes }: OutputTensors,
  output: TensorAppender,
): OnCodes {
  if (!unpacked || CODE_TYPES[type].bits === 8) return (bytes) => output.append(codes, bytes);
  return (bytes) => {
    const packed = new Uint8Array(bytes.length / 2);
    packFour(bytes, packed);
    return output.append(codes, packed);
  };
}

/**
 * Writes codes and scales. `judge` reads the codes, and each piece is appended after it is read. If only a global scale changes,
 * the statistics of `judge` also give the changes; otherwise codes whose scales change are read again and decoded. The scales are
 * computed again here, so that the plan does not hold the scales of every weight.
 */
export async function writeRepacked(
  kernels: Kernels,
  weight: QuantizedWeight,
  target: Target,
  outputs: OutputTensors,
  output: TensorAppender,
  judge: JudgeWeight,
): Promise<Changes> {
  const scales = await repackScales(kernels, weight, target, outputs);
  if (!scales)
    throw new FileError(`tensor "${weight.name}": its scales have changed since they were read first`);
  const { before, after, index, globals, rescaling } = scales;
  const changes = new Changes();
  const bytes = index ? expandTable(kernels, scales.bytes, index.bytes) : scales.bytes;
  const [matrices] = matricesOf(weight.shape);
  const step = bytes.length / matrices;
  for (let matrix = 0; matrix < matrices; matrix++)
    await output.append(
      outputs.scale,
      inFileLayout(
        kernels,
        target,
        bytes.subarray(matrix * step, (matrix + 1) * step),
        outputs.blocks.grid[1],
      ),
    );
  const { tallies } = await judge(weight.name, codeAppender(weight, outputs, output));
  if (outputs.global) await output.append(outputs.global, asBytes(Float32Array.from(globals)));
  if (before === after) {
    changes.elements = elementCount(weight.shape);
    return changes;
  }
  const knownChanges = rescaling && tallies && changesByTallies(weight, rescaling, tallies);
  if (knownChanges) return knownChanges;
  await compareCodes(kernels, weight, outputs, ofBlocks(before, index), ofBlocks(after, index), changes);
  return changes;
}

const ofBlocks = (scales: Float32Array, index: KernelBuffer | undefined): Float32Array =>
  index ? Float32Array.from(index.bytes, (byte) => scales[byte] as number) : scales;

/**
 * Expands a table of 256 scales, each of `bytes.length / 256` bytes, to one scale for each block. Returns `index` if the table is
 * the identity.
 */
function expandTable(kernels: Kernels, bytes: Uint8Array, index: Uint8Array): Uint8Array {
  const size = bytes.length / 256;
  if (size === 1) {
    if (bytes.every((byte, i) => byte === i)) return index;
    const expandedScales = kernels.buffer("expanded scales", index.length).bytes;
    for (let i = 0; i < index.length; i++) expandedScales[i] = bytes[index[i] as number] as number;
    return expandedScales;
  }
  const expandedScales = new Uint8Array(index.length * size);
  for (let i = 0; i < index.length; i++) {
    const from = (index[i] as number) * size;
    for (let byte = 0; byte < size; byte++) expandedScales[i * size + byte] = bytes[from + byte] as number;
  }
  return expandedScales;
}

async function compareCodes(
  kernels: Kernels,
  weight: QuantizedWeight,
  { blocks, type }: OutputTensors,
  before: Float32Array,
  after: Float32Array,
  changes: Changes,
): Promise<void> {
  const codeValues = CODE_TYPES[type].values;
  const { size, grid, kind } = blocks;
  for await (const { matrix, row, rows, columns, codes: storedCodes } of codeRows(weight)) {
    const codes = storedCodes instanceof Uint8Array ? storedCodes : Uint8Array.from(storedCodes);
    const first = kind === "whole" ? 0 : (matrix * grid[0] + Math.floor(row / size[0])) * grid[1];
    const values = Float64Array.from(codes, (code) => codeValues[code] as number);
    for (let i = 0; i < values.length; i++) {
      const line = kind === "whole" ? 0 : Math.floor(Math.floor(i / columns) / size[0]) * grid[1];
      values[i] =
        (values[i] as number) * (before[first + line + Math.floor((i % columns) / size[1])] as number);
    }
    const before64 = { rows, columns, type: "f64", values } as const;
    compareRows(kernels, { blocks, type }, before64, codes, { values: after.subarray(first) }, changes);
  }
}
