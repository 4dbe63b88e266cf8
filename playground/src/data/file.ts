/** Tensors of a safetensors file that was dropped on the page. It is read in pieces and stays in the browser. */
import type { Backend } from "lockstep";
import { openCheckpointBlob, type TensorEntry } from "lockstep/checkpoints/portable";
import { configurationsIn, readWeight, weightsIn } from "./checkpoint.js";
import { type Lines, MAX_SIZE } from "./numbers.js";
import { readStored, type Stored } from "./stored.js";

/** A quantized tensor, which consists of several tensors: its shape, and its kind in a few words. */
export interface QuantizedEntry extends Pick<TensorEntry, "shape"> {
  readonly kind: string;
}

/** A file's tensors, by name. */
export interface OpenFile {
  readonly name: string;
  readonly tensors: ReadonlyMap<string, TensorEntry>;
  /** The quantized tensors. */
  readonly quantized: ReadonlyMap<string, QuantizedEntry>;
  /** Why tensors are meaningless by themselves: they are codes without scales, or parts of quantized tensors. */
  readonly faults: ReadonlyMap<string, string>;
  /**
   * Reads the part of a tensor, as a matrix, that the page shows from (row, column) on. Throws an error for a tensor without
   * values.
   */
  read(tensor: string, row: number, column: number): Promise<Lines>;
  /** Reads codes and scales of a quantized tensor in the same region. */
  readStored(backend: Backend, tensor: string, row: number, column: number): Promise<Stored>;
}

/**
 * Opens a file, with its configurations if there are any. Throws `FileError` for a file that is not safetensors, and for
 * configurations that cannot be parsed.
 */
export async function openFile(file: File, configurations: readonly File[] = []): Promise<OpenFile> {
  const { name } = file;
  const checkpoint = await openCheckpointBlob(file, { name, ...(await configurationsIn(configurations)) });
  const { tensors, lockstepWeights } = checkpoint;
  const { weights, faults } = weightsIn(checkpoint);
  const quantized = new Map<string, QuantizedEntry>();
  for (const [weight, { quantizer, format, tile, shape }] of lockstepWeights)
    quantized.set(weight, { kind: `${quantizer} ${format} ${tile}`, shape });
  for (const [weight, { convention, shape }] of weights) quantized.set(weight, { kind: convention, shape });
  return {
    name,
    tensors,
    quantized,
    faults,
    readStored: async (backend, tensor, row, column) => {
      if (lockstepWeights.has(tensor)) return readStored(backend, checkpoint, tensor, [row, column]);
      const weight = weights.get(tensor);
      const finding = weight ? undefined : checkpoint.findings.find(({ subject }) => subject === tensor);
      if (finding) throw new Error(finding.what);
      if (!weight) throw new Error(`${name} has no quantized tensor ${tensor}`);
      return readWeight((...args) => checkpoint.readWeight(...args), weight, [row, column]);
    },
    read: async (tensor, row, column) => {
      const entry = tensors.get(tensor);
      if (!entry) throw new Error(`${name} has no tensor ${tensor}`);
      const fault = faults.get(tensor);
      if (fault !== undefined) throw new Error(fault);
      const [rows, columns] = sizeOf(entry);
      const shown = { rows: Math.min(MAX_SIZE, rows - row), columns: Math.min(MAX_SIZE, columns - column) };
      if (shown.rows <= 0 || shown.columns <= 0) return { ...shown, values: new Float32Array() };
      return { ...shown, values: await checkpoint.readTensor(tensor, { row, column, ...shown }) };
    },
  };
}

/** The rows and columns of a tensor viewed as a matrix. */
export function sizeOf({ shape }: Pick<TensorEntry, "shape">): readonly [rows: number, columns: number] {
  const columns = shape.at(-1) ?? 1;
  return [shape.slice(0, -1).reduce((product, size) => product * size, 1), columns];
}
