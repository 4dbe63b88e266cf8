/** Compares the values of a weight with those of its codes and scales. */
import { CODE_TYPES } from "../stored/code-types.js";
import type { Parts } from "./parts.js";
import type { SourceRows } from "./source.js";
import type { Changes } from "./wide.js";

/** What a run of elements under one scale changed, and a sum that is NaN if an element is NaN or infinite. */
interface Run {
  changed: number;
  max: number;
  relative: number;
  sum: number;
}

/**
 * Adds what rows of a weight became to `changes`. `codes` has one byte per element, or two elements of four bits; `scales` is the
 * scale of each block, row by row, by which codes are multiplied. Returns false if an element is NaN or infinite.
 */
export function compareRows(
  { blocks, type }: Pick<Parts, "blocks" | "type">,
  { rows, columns, values }: Pick<SourceRows, "rows" | "columns" | "values">,
  codes: Uint8Array,
  scales: Float32Array,
  changes: Changes,
): boolean {
  const { values: worth } = CODE_TYPES[type];
  const { kind, size, grid } = blocks;
  const compare = codes.length < rows * columns ? comparePairs : compareBytes;
  const run: Run = { changed: 0, max: changes.max, relative: changes.relative, sum: 0 };
  const whole = kind === "whole";
  const width = whole ? columns : size[1];
  for (let row = 0; row < rows; row++) {
    let index = whole ? 0 : Math.floor(row / size[0]) * grid[1];
    const end = (row + 1) * columns;
    for (let at = row * columns; at < end; at += width, index++)
      compare(run, values, codes, worth, scales[index] as number, at, Math.min(end, at + width));
  }
  changes.elements += rows * columns;
  changes.changed += run.changed;
  changes.max = run.max;
  changes.relative = run.relative;
  return run.sum === 0;
}

function note(run: Run, before: number, after: number): void {
  const difference = Math.abs(before - after);
  run.changed++;
  if (difference > run.max) run.max = difference;
  const magnitude = Math.abs(before);
  if (difference > run.relative * magnitude) run.relative = difference / magnitude;
}

type Values = Float32Array | Float64Array;

function compareBytes(
  run: Run,
  values: Values,
  codes: Uint8Array,
  worth: Float64Array,
  scale: number,
  begin: number,
  end: number,
): void {
  let sum = 0;
  for (let at = begin; at < end; at++) {
    const before = values[at] as number;
    const after = (worth[codes[at] as number] as number) * scale;
    sum += before * 0;
    if (before !== after) note(run, before, after);
  }
  run.sum += sum;
}

function comparePairs(
  run: Run,
  values: Values,
  codes: Uint8Array,
  worth: Float64Array,
  scale: number,
  begin: number,
  end: number,
): void {
  let sum = 0;
  for (let at = begin; at < end; at += 2) {
    const byte = codes[at >>> 1] as number;
    const low = values[at] as number;
    const high = values[at + 1] as number;
    const lowAfter = (worth[byte & 15] as number) * scale;
    const highAfter = (worth[byte >>> 4] as number) * scale;
    sum += low * 0 + high * 0;
    if (low !== lowAfter) note(run, low, lowAfter);
    if (high !== highAfter) note(run, high, highAfter);
  }
  run.sum += sum;
}
