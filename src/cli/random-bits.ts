/** Random bits for stochastic rounding, from the input file: U32 tensors whose names derive from the rounded tensors. */
import type { Backend } from "../backends/backend.js";
import { ArgumentError, FileError } from "../errors.js";
import { blockedRows, blockFormat } from "../formats/block.js";
import type { TensorSource } from "../io/source.js";
import { fromBytes } from "../ops/create.js";
import { alignBytes, asBytes, viewAs } from "../tensor/data.js";
import type { Direction, GivenRandomBits, QuantizeSpec } from "../tensor/quantized.js";
import type { Shape } from "../tensor/shape.js";
import type { Tensor } from "../tensor/tensor.js";
import { flag } from "./options.js";

const NAMES = { rowwise: "random_bits", columnwise: "random_bits_columnwise" } as const;

/** The option that reads random bits from the file. */
export const RANDOM_BITS = {
  "random-bits": flag(
    "round a tensor NAME stochastically by the file's NAME.random_bits and, for the columnwise copy, NAME.random_bits_columnwise: U32, a word for each element in the order of the codes",
  ),
} as const;

/** The name of the tensor with the random bits of a copy of a tensor. */
export function randomBitsName(name: string, direction: Direction): string {
  return `${name}.${NAMES[direction]}`;
}

/** The shape of the random bits of a copy of a matrix: the shape of its codes before packing. */
export function randomBitsShape(
  spec: QuantizeSpec,
  [rows, columns]: readonly [rows: number, columns: number],
  direction: Direction,
): Shape {
  if (direction === "rowwise") return [rows, columns];
  const rowCount = blockedRows(spec, rows);
  const isTransposed = blockFormat(spec.quantizer).columnwise.data === "transposed";
  return isTransposed ? [columns, rowCount] : [rowCount, columns];
}

/** Throws `ArgumentError` for --random-bits without stochastic rounding; `option` names the option that selects it. */
export function requireStochastic(isGiven: boolean, isStochastic: boolean, option: string): void {
  if (isGiven && !isStochastic)
    throw new ArgumentError(`--random-bits is for stochastic rounding; give ${option} too, or leave it out`);
}

/** Reads the random bits of a copy of a tensor. Throws `FileError` if the file lacks them or their dtype is not U32. */
export async function readRandomBits(
  file: TensorSource,
  name: string,
  direction: Direction,
): Promise<Uint32Array> {
  const entry = file.entry(randomBitsName(name, direction));
  if (entry.dtype !== "U32")
    throw new FileError(`${file.path}: tensor "${entry.name}": is ${entry.dtype}; random bits are U32`);
  const bytes = await file.read(entry);
  return viewAs("u32", alignBytes(bytes, 4)) as Uint32Array;
}

/** Random bits from a file, for each copy. */
export type RandomWords = Partial<Record<Direction, Uint32Array>>;

/** The random bits as tensors, which the open scope owns. */
export function givenRandomBits(backend: Backend, { rowwise, columnwise }: RandomWords): GivenRandomBits {
  const asTensor = (bits: Uint32Array | undefined): Tensor<"u32"> | undefined =>
    bits && (fromBytes(backend, asBytes(bits), [bits.length], "u32") as Tensor<"u32">);
  return { randomBits: asTensor(rowwise), randomBitsColumnwise: asTensor(columnwise) };
}
