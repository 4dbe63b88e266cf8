/** A part of a quantized tensor of a file: its codes and scales as they are stored. */
import {
  type Backend,
  BLOCK_FORMATS,
  type BlockFormat,
  QuantizedTensor,
  Quantizer,
  type Tensor,
  tensor,
} from "lockstep";
import { isLineWide, isTensorWide, tileSize } from "../../../dist/src/formats/block.js";
import { allMembers, type Member, requireMembers } from "../../../dist/src/io/quantized/quantized-file.js";
import type { Recipe } from "../../../dist/src/io/quantized/recipe.js";
import type { TensorSource } from "../../../dist/src/io/source.js";
import { type CopyGeometry, copyGeometry } from "../../../dist/src/tensor/geometry.js";
import { scaleIndex } from "../../../dist/src/tensor/places.js";
import { asMatrix } from "../../../dist/src/tensor/shape.js";
import { type Codes, codesOf, within } from "../reference/index.js";
import { MAX_SIZE } from "./numbers.js";

/** The codes, scales and values of a part, and where it begins. */
export interface Stored extends Codes {
  readonly from: readonly [row: number, column: number];
  /** How the tensor is quantized, in a few words. */
  readonly description: string;
  /** What else is to be said of it, a sentence each. */
  readonly notes: readonly string[];
  /** Whether codes have sign, exponent and fraction of the format. */
  readonly hasFields: boolean;
}

/** A range of rows or columns. */
export interface Range {
  readonly from: number;
  readonly size: number;
}

/**
 * Reads the part of a quantized tensor from (row, column) on, as much as the page shows; it begins with a whole block. Throws
 * `FileError` for tensors that are missing or misshapen, or where there is no rowwise copy.
 */
export async function readStored(
  backend: Backend,
  file: TensorSource,
  name: string,
  recipe: Recipe,
  [row, column]: readonly [number, number],
): Promise<Stored> {
  requireMembers(file, name, recipe, "rowwise");
  const { spec } = recipe;
  const size = asMatrix(recipe.shape);
  if (size.includes(0)) throw new Error(`${file.path}: tensor ${name} is empty: [${recipe.shape}]`);
  const whole = copyGeometry(spec, size, "rowwise", recipe.scales);
  const [tall, long] = tileOf(spec);
  const rows = rangeOf(row, size[0], tall);
  const { multiple }: BlockFormat = BLOCK_FORMATS[spec.quantizer];
  const columns = rangeOf(column, size[1], Math.max(long, multiple));
  const part: Recipe = {
    ...recipe,
    shape: [rows.size, columns.size],
    scales: "logical",
    usage: ["rowwise"],
  };
  const own = copyGeometry(spec, [rows.size, columns.size], "rowwise", "logical");
  const read = new Map<string, Part>();
  for (const member of allMembers(name, part)) {
    const { field, plan } = member;
    const bytesOf = (begin?: number, end?: number) => file.read(file.entry(plan.name), begin, end);
    const bytes =
      field === "data"
        ? await readCodes(bytesOf, size[1], rows, columns, bitsOf(member))
        : field === "scaleInv"
          ? gathered(await bytesOf(), spec, { whole, own, rows, columns })
          : await bytesOf();
    read.set(field, { member, bytes });
  }
  return within(() => {
    const made = (field: Member["field"]) => tensorOf(backend, read.get(field) as Part);
    const amax = read.has("amax") ? { amax: made("amax") as Tensor<"f32"> } : {};
    const { shape, dtype } = part;
    const rowwise = { data: made("data"), scaleInv: made("scaleInv"), ...amax };
    const ops = new FileQuantizer(spec);
    const quantized = new QuantizedTensor({ spec, shape, dtype, scaleLayout: "logical", ops, rowwise });
    const values = quantized.dequantize("f32") as Tensor<"f32">;
    return {
      ...codesOf(quantized, values, [rows.size, columns.size]),
      from: [rows.from, columns.from],
      description: `${spec.quantizer}, ${spec.format}, tiles of ${spec.tile}, of a ${dtype} tensor [${recipe.shape.join(", ")}]`,
      notes: [],
      hasFields: true,
    };
  });
}

/** Stands in for the quantizer of a tensor that was read from a file. */
class FileQuantizer extends Quantizer {}

/** A tensor of a quantized tensor, and its bytes. */
interface Part {
  readonly member: Member;
  readonly bytes: Uint8Array;
}

function tensorOf(backend: Backend, { member: { dtype, shape }, bytes }: Part): Tensor {
  return tensor(backend, dtype === "f32" ? new Float32Array(bytes.slice().buffer) : bytes, shape, dtype);
}

/** The rows and columns of a block. For a tensor or a whole row as a block, those whose codes begin at a byte. */
function tileOf({ tile }: Recipe["spec"]): readonly [number, number] {
  return isTensorWide(tile) || isLineWide(tile) ? [1, 2] : tileSize(tile);
}

/** What is shown from an index on: whole blocks. */
function rangeOf(at: number, count: number, block: number): Range {
  const from = Math.floor(Math.min(at, count - 1) / block) * block;
  return { from, size: Math.min(MAX_SIZE, count - from) };
}

/** The bits of a code in the file. */
function bitsOf({ plan, shape }: Member): number {
  return (8 * (plan.shape.at(-1) ?? 1)) / (shape.at(-1) ?? 1);
}

type Read = (begin?: number, end?: number) => Promise<Uint8Array>;

async function readCodes(
  read: Read,
  width: number,
  rows: Range,
  columns: Range,
  bits: number,
): Promise<Uint8Array> {
  const bytesIn = (count: number) => (count * bits) / 8;
  const bytes = new Uint8Array(bytesIn(rows.size * columns.size));
  for (let row = 0; row < rows.size; row++) {
    const begin = bytesIn((rows.from + row) * width + columns.from);
    bytes.set(await read(begin, begin + bytesIn(columns.size)), bytesIn(row * columns.size));
  }
  return bytes;
}

/** The scales of a part in the logical layout, of all scales in the layout of the file. */
function gathered(
  stored: Uint8Array,
  spec: Recipe["spec"],
  places: {
    readonly whole: CopyGeometry;
    readonly own: CopyGeometry;
    readonly rows: Range;
    readonly columns: Range;
  },
): Uint8Array {
  const { whole, own, rows, columns } = places;
  const { scale, replicates }: BlockFormat = BLOCK_FORMATS[spec.quantizer];
  const width = scale === "f32" ? 4 : 1;
  const { lines, blocks } = own.placement;
  const made = new Uint8Array(lines * blocks * width);
  const [tall, long] = tileOf(spec);
  const next = replicates ? 1 : tall;
  for (let line = 0; line < lines; line++)
    for (let block = 0; block < blocks; block++) {
      const at = { line: line * next, along: block * long };
      const from = scaleIndex(spec, whole, { line: rows.from + at.line, along: columns.from + at.along });
      const to = scaleIndex(spec, own, at);
      made.set(stored.subarray(from * width, (from + 1) * width), to * width);
    }
  return made;
}
