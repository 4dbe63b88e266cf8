/** Simplifies quantizations to one block and the plainest options. */
import { blockedRows, blockFormat, isTensorWide, tileSize } from "../../../src/formats/block.js";
import type { QuantizeCase } from "../../operations/quantize/quantize.js";
import { fromCodes, type PlainTensor } from "../../values/plain.js";
import { cropped } from "./elements.js";

/** Cases with fewer options, then with fewer blocks, the simplest first. */
export function* simplerQuantizations(input: QuantizeCase): Iterable<QuantizeCase> {
  yield* simplerOptions(input);
  const { spec, x, part } = input;
  if (part) return;
  const [rows, columns] = x.matrix;
  if (rows === 0 || columns === 0) return;
  const { multiple } = blockFormat(spec.quantizer);
  const [lines, length] = isTensorWide(spec.tile) ? [1, 1] : tileSize(spec.tile);
  const turned = input.usage.columnwise;
  const step = (size: number, unit: number): readonly number[] =>
    isTensorWide(spec.tile) ? halves(size) : [...new Set([1, unit, size])].filter((each) => each < size);
  const high = turned ? Math.max(lines, length) : lines;
  const wide = Math.max(length, multiple);
  for (const width of step(columns, wide).filter((each) => each % multiple === 0))
    for (let left = 0; left < columns; left += width)
      yield croppedCase(input, [0, rows], [left, Math.min(columns, left + width)]);
  for (const height of step(rows, high))
    for (let top = 0; top < rows; top += height)
      yield croppedCase(input, [top, Math.min(rows, top + height)], [0, columns]);
}

type Span = readonly [number, number];

/** The case for a part of the matrix. Random words stay with their elements. */
function croppedCase(input: QuantizeCase, rows: Span, columns: Span): QuantizeCase {
  const { x, randomBits, randomBitsColumnwise } = input;
  return {
    ...input,
    x: cropped(x, rows, columns),
    ...(randomBits ? { randomBits: cropped(randomBits, rows, columns) } : {}),
    ...(randomBitsColumnwise
      ? { randomBitsColumnwise: croppedColumnwise(input, randomBitsColumnwise, rows, columns) }
      : {}),
  };
}

/** The random words of a part of a columnwise copy; padding rows have zeros. */
function croppedColumnwise(
  { spec, x }: QuantizeCase,
  words: PlainTensor<"u32">,
  [top, bottom]: Span,
  [left, right]: Span,
): PlainTensor<"u32"> {
  const isTurned = blockFormat(spec.quantizer).columnwise.data === "transposed";
  const [copyRows, columns] = [blockedRows(spec, x.matrix[0]), x.matrix[1]];
  const [high, wide] = [blockedRows(spec, bottom - top), right - left];
  const wordAt = (row: number, column: number): number =>
    row < bottom - top
      ? (words.codes[
          isTurned ? (left + column) * copyRows + top + row : (top + row) * columns + left + column
        ] as number)
      : 0;
  const partWords = Array.from({ length: high * wide }, (_, i) =>
    isTurned ? wordAt(i % high, Math.floor(i / high)) : wordAt(Math.floor(i / wide), i % wide),
  );
  return fromCodes("u32", isTurned ? [wide, high] : [high, wide], partWords);
}

function halves(size: number): readonly number[] {
  return [1, Math.ceil(size / 2)].filter((each) => each < size);
}

function* simplerOptions(input: QuantizeCase): Iterable<QuantizeCase> {
  const { usage, scaleLayout, random, noop, x, scale, records, part } = input;
  if (noop !== undefined) yield { ...input, noop: undefined };
  if (part) yield { ...input, part: undefined };
  if (usage.rowwise && usage.columnwise) {
    yield { ...input, usage: { rowwise: true, columnwise: false }, randomBitsColumnwise: undefined };
    yield { ...input, usage: { rowwise: false, columnwise: true }, randomBits: undefined };
  }
  if (scaleLayout !== "logical") yield { ...input, scaleLayout: "logical" };
  if (random.seed !== 0n || random.offset !== 0n) yield { ...input, random: { seed: 0n, offset: 0n } };
  if (scale !== 1) yield { ...input, scale: 1 };
  if (records === false) yield { ...input, records: true };
  if (x.shape.length !== 2) yield { ...input, x: cropped(x, [0, x.matrix[0]], [0, x.matrix[1]]) };
}
