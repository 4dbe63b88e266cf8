/** Reads a region of a quantized tensor from a file, without reading the whole tensor. */
import type { Backend } from "../../backends/backend.js";
import { blockFormat, isLineWide, isTensorWide, tileSize } from "../../formats/block.js";
import { type CopyGeometry, copyGeometry } from "../../tensor/geometry.js";
import { scaleIndex } from "../../tensor/places.js";
import type { QuantizedTensor, QuantizeSpec } from "../../tensor/quantized.js";
import { asMatrix } from "../../tensor/shape.js";
import type { TensorSource } from "../source.js";
import {
  allMembers,
  type Member,
  type MemberBytes,
  makeQuantized,
  requireMembers,
} from "./quantized-file.js";
import type { Recipe } from "./recipe.js";

/** A rectangle of a matrix. */
interface Rectangle {
  readonly row: number;
  readonly column: number;
  readonly rows: number;
  readonly columns: number;
}

/**
 * The step between the positions at which a region may begin, in rows and in columns. Rows: the rows of the tile. Columns: the
 * columns of the tile, or the column multiple of the quantizer if it is larger. If one scale belongs to a tensor or a row, 2
 * takes the place of the tile's columns, so that a region begins at a byte.
 */
export function regionStep({
  quantizer,
  tile,
}: Pick<QuantizeSpec, "quantizer" | "tile">): readonly [number, number] {
  const [rows, columns] = tileStep({ tile });
  return [rows, Math.max(columns, blockFormat(quantizer).multiple)];
}

function tileStep({ tile }: Pick<QuantizeSpec, "tile">): readonly [number, number] {
  return isTensorWide(tile) || isLineWide(tile) ? [1, 2] : tileSize(tile);
}

/**
 * Reads the rowwise copy of a region that begins at multiples of `regionStep`. Its scales have the logical layout. Throws
 * `FileError` for tensors that are missing or misshapen, or if there is no rowwise copy.
 */
export async function readQuantizedRegion(
  backend: Backend,
  file: TensorSource,
  name: string,
  recipe: Recipe,
  region: Rectangle,
): Promise<QuantizedTensor> {
  requireMembers(file, name, recipe, "rowwise");
  const size = asMatrix(recipe.shape);
  const part: Recipe = {
    ...recipe,
    shape: [region.rows, region.columns],
    scales: "logical",
    usage: ["rowwise"],
  };
  const geometries = {
    whole: copyGeometry(recipe.spec, size, "rowwise", recipe.scales),
    part: copyGeometry(recipe.spec, [region.rows, region.columns], "rowwise", "logical"),
  };
  const members: MemberBytes[] = [];
  for (const member of allMembers(name, part)) {
    const entry = file.entry(member.plan.name);
    const read: Read = (begin, end) => file.read(entry, begin, end);
    const bytes = await {
      data: () => readCodes(read, size[1], region, bitsOf(member)),
      scaleInv: async () => gatherScales(await read(), recipe.spec, geometries, region),
      amax: () => (recipe.spec.rowScaled ? read(...amaxRange(region)) : read()),
    }[member.field]();
    members.push({ ...member, bytes });
  }
  return makeQuantized(backend, members, part);
}

type Read = (begin?: number, end?: number) => Promise<Uint8Array>;

/** The byte range of the amaxes of the region's rows, for a tensor with one amax for each row. */
function amaxRange({ row, rows }: Rectangle): readonly [begin: number, end: number] {
  return [4 * row, 4 * (row + rows)];
}

/** The bits of a code in the file. */
function bitsOf({ plan, shape }: Member): number {
  return (8 * (plan.shape.at(-1) ?? 1)) / (shape.at(-1) ?? 1);
}

async function readCodes(
  read: Read,
  width: number,
  { row, column, rows, columns }: Rectangle,
  bits: number,
): Promise<Uint8Array> {
  const bytesIn = (count: number): number => (count * bits) / 8;
  const bytes = new Uint8Array(bytesIn(rows * columns));
  for (let r = 0; r < rows; r++) {
    const begin = bytesIn((row + r) * width + column);
    bytes.set(await read(begin, begin + bytesIn(columns)), bytesIn(r * columns));
  }
  return bytes;
}

/** The scales of the region in the logical layout, from all scales in the layout of the file. */
function gatherScales(
  stored: Uint8Array,
  spec: QuantizeSpec,
  geometries: { readonly whole: CopyGeometry; readonly part: CopyGeometry },
  { row, column }: Rectangle,
): Uint8Array {
  const { scale, replicates } = blockFormat(spec.quantizer);
  const width = scale === "f32" ? 4 : 1;
  const { lines, blocks } = geometries.part.placement;
  const gathered = new Uint8Array(lines * blocks * width);
  const [tileRows, tileColumns] = tileStep(spec);
  const lineStep = replicates ? 1 : tileRows;
  for (let line = 0; line < lines; line++)
    for (let block = 0; block < blocks; block++) {
      const at = { line: line * lineStep, along: block * tileColumns };
      const from = scaleIndex(spec, geometries.whole, { line: row + at.line, along: column + at.along });
      const to = scaleIndex(spec, geometries.part, at);
      gathered.set(stored.subarray(from * width, (from + 1) * width), to * width);
    }
  return gathered;
}
