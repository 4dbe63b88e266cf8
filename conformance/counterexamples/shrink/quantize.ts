/** Quantizations of one block, with the plainest options. */
import { blockFormat, isTensorWide, tileSize } from "../../../src/formats/block.js";
import type { QuantizeCase } from "../../operations/quantize/quantize.js";
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
      yield { ...input, x: cropped(x, [0, rows], [left, Math.min(columns, left + width)]) };
  for (const height of step(rows, high))
    for (let top = 0; top < rows; top += height)
      yield { ...input, x: cropped(x, [top, Math.min(rows, top + height)], [0, columns]) };
}

function halves(size: number): readonly number[] {
  return [1, Math.ceil(size / 2)].filter((each) => each < size);
}

function* simplerOptions(input: QuantizeCase): Iterable<QuantizeCase> {
  const { usage, scaleLayout, random, noop, x, scale, records, part } = input;
  if (noop !== undefined) yield { ...input, noop: undefined };
  if (part) yield { ...input, part: undefined };
  if (usage.rowwise && usage.columnwise) {
    yield { ...input, usage: { rowwise: true, columnwise: false } };
    yield { ...input, usage: { rowwise: false, columnwise: true } };
  }
  if (scaleLayout !== "logical") yield { ...input, scaleLayout: "logical" };
  if (random.seed !== 0n || random.offset !== 0n) yield { ...input, random: { seed: 0n, offset: 0n } };
  if (scale !== 1) yield { ...input, scale: 1 };
  if (records === false) yield { ...input, records: true };
  if (x.shape.length !== 2) yield { ...input, x: cropped(x, [0, x.matrix[0]], [0, x.matrix[1]]) };
}
