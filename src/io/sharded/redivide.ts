/** Divides saved quantized tensors among other ranks, or another number of ranks, by rows. */
import { concatenateRows, emptyRows, rowsOfQuantized } from "../../collectives/quantized.js";
import { isTensorWide } from "../../formats/block.js";
import { blockRows } from "../../parallel/fsdp/sharded-parameter.js";
import { asBytes } from "../../tensor/data.js";
import type { Range, TensorPart } from "../../tensor/part.js";
import type { QuantizedTensor } from "../../tensor/quantized.js";
import { Scope } from "../../tensor/scope.js";
import type { Tensor } from "../../tensor/tensor.js";
import { type FileTensor, memberTensors } from "../quantized/quantized-file.js";
import type { LocalTensor } from "./local.js";
import type { ShardFiles } from "./read.js";

/** Consecutive rows of a saved part. */
interface Piece {
  /** The number of the part. */
  readonly part: number;
  /** The first of the rows, counted in the part. */
  readonly first: number;
  readonly count: number;
}

/** A part that was saved: its rows, and the bytes of its codes and scales by name. */
interface SavedPart {
  readonly rows: number;
  readonly bytes: ReadonlyMap<string, Uint8Array>;
}

/**
 * Returns the bytes of the codes and scales of a quantized tensor, by name, cut from the saved parts. Throws `FileError` unless
 * every part begins and ends at a block boundary and all parts have the same per-tensor scale and amax. For a part without rows,
 * only that scale and amax are returned.
 */
export async function redivide(
  files: ShardFiles,
  members: readonly LocalTensor[],
): Promise<ReadonlyMap<string, Uint8Array>> {
  const [{ name, part, member }] = members as readonly [LocalTensor & Required<Pick<LocalTensor, "member">>];
  const { value, subject } = member;
  const ranges = files.rangesOf(name);
  const why = refusal(value, part, ranges);
  if (why !== undefined)
    throw files.fail(
      name,
      `is quantized, and this rank has ranges ${JSON.stringify(part.ranges)} of it, and no rank saved these ranges; ${why}; resume with the same parts`,
    );
  const shared = tensorWideMembers(value, subject);
  const pieces = piecesOf(part, ranges);
  if (pieces.length === 0) {
    const read = shared.map(async ({ name, shape }) => [name, await files.stored(name, 0, shape)] as const);
    return new Map(await Promise.all(read));
  }
  const parts = new Map<number, SavedPart>();
  for (const { part: number } of pieces) {
    if (parts.has(number)) continue;
    const rows = lengthOf(ranges[number]?.[0] ?? []);
    parts.set(number, { rows, bytes: await savedBytes(files, { value, subject, rows, number }) });
  }
  for (const { name } of shared) requireEqual(files, name, [...parts.values()]);
  const joined = joinedPieces(value, { subject, pieces, parts });
  const read = new Map<string, Uint8Array>();
  for (const { name, tensor } of memberTensors(subject, joined)) read.set(name, asBytes(await tensor.data()));
  joined.dispose();
  return read;
}

/** Returns the reason why rows cannot be cut from the saved parts, or undefined if they can. */
function refusal(
  value: QuantizedTensor,
  { shape, ranges }: TensorPart,
  saved: readonly TensorPart["ranges"][],
): string | undefined {
  const [rows = 0] = shape;
  const block = blockRows(value);
  for (const [rowRanges = [], ...others] of [ranges, ...saved]) {
    const isWhole = ([[begin, end, ...more] = [0, -1], ...rest]: readonly Range[], i: number): boolean =>
      begin === 0 && end === shape[i + 1] && more.length === 0 && rest.length === 0;
    if (!others.every(isWhole)) return "its columns are divided, and only rows can be divided again";
    if (rowRanges.flat().some((end) => end % block !== 0 && end !== rows))
      return `parts that begin or end within a block of ${block} rows have other blocks`;
  }
  return value.spec.compact ? "its layout is compact" : undefined;
}

const lengthOf = (ranges: readonly Range[]): number =>
  ranges.reduce((sum, [begin, end]) => sum + end - begin, 0);

/** Finds the rows of a part among the saved parts, in order. The saved parts cover all rows. */
function piecesOf(
  { ranges: [rowRanges = []] }: TensorPart,
  saved: readonly TensorPart["ranges"][],
): readonly Piece[] {
  return rowRanges.flatMap(([begin, end]) => {
    const pieces = saved.flatMap(([ranges = []], part) => {
      let offset = 0;
      return ranges.flatMap(([from, to]) => {
        offset += to - from;
        const [first, last] = [Math.max(begin, from), Math.min(end, to)];
        return first < last
          ? [{ first, piece: { part, first: offset - to + first, count: last - first } }]
          : [];
      });
    });
    return pieces.sort((a, b) => a.first - b.first).map(({ piece }) => piece);
  });
}

async function savedBytes(
  files: ShardFiles,
  saved: {
    readonly value: QuantizedTensor;
    readonly subject: string;
    readonly rows: number;
    readonly number: number;
  },
): Promise<ReadonlyMap<string, Uint8Array>> {
  const { value, subject, rows, number } = saved;
  using empty = emptyRows(value, rows);
  const bytes = new Map<string, Uint8Array>();
  for (const { name, shape } of memberTensors(subject, empty))
    bytes.set(name, await files.stored(name, number, shape));
  return bytes;
}

/** The per-tensor scale and amax of each copy. */
function tensorWideMembers(value: QuantizedTensor, subject: string): readonly FileTensor[] {
  const { tile, rowScaled } = value.spec;
  const tensors = [value.rowwise, value.columnwise].flatMap((copy) => [
    isTensorWide(tile) ? copy?.scaleInv : undefined,
    rowScaled ? undefined : copy?.amax,
  ]);
  return memberTensors(subject, value).filter(({ tensor }) => tensors.includes(tensor as Tensor<"f32">));
}

/** Throws `FileError` unless the parts have equal bytes by this name. */
function requireEqual(files: ShardFiles, name: string, parts: readonly SavedPart[]): void {
  const [first, ...others] = parts.map(({ bytes }) => bytes.get(name) as Uint8Array) as [Uint8Array];
  if (others.every((each) => Buffer.compare(each, first) === 0)) return;
  throw files.fail(
    name,
    "is not the same in the parts that ranks had, so no whole has them; resume with the same parts",
  );
}

/** Joins pieces of saved parts to a quantized tensor. The caller disposes of it. */
function joinedPieces(
  value: QuantizedTensor,
  saved: {
    readonly subject: string;
    readonly pieces: readonly Piece[];
    readonly parts: ReadonlyMap<number, SavedPart>;
  },
): QuantizedTensor {
  const { subject, pieces, parts } = saved;
  using scope = new Scope();
  const tensors = new Map(
    [...parts].map(([number, { rows, bytes }]) => {
      const part = emptyRows(value, rows);
      for (const { name, tensor } of memberTensors(subject, part))
        tensor.write(bytes.get(name) as Uint8Array);
      return [number, part] as const;
    }),
  );
  const cut = pieces.map(({ part, first, count }) =>
    rowsOfQuantized(tensors.get(part) as QuantizedTensor, { first, count }, value.quantizer),
  );
  return scope.keep(concatenateRows(cut));
}
