/** Quantized weights of other libraries in a file: the library pairs codes with scales, and a part of them is read. */
import { FileError } from "lockstep";
import type { Finding } from "../../../dist/src/checkpoints/judge/findings.js";
import {
  declares,
  type RecognizedWeight,
  recognize,
} from "../../../dist/src/checkpoints/recognize/recognize.js";
import { CODE_TYPES, unpackCodes } from "../../../dist/src/checkpoints/stored/code-types.js";
import { type Claim, claimIn, parseObject } from "../../../dist/src/checkpoints/stored/config/claim.js";
import { conventionOf } from "../../../dist/src/checkpoints/stored/conventions.js";
import { scaleIndexOf } from "../../../dist/src/checkpoints/stored/dequantize.js";
import { isElementwise } from "../../../dist/src/checkpoints/stored/elementwise.js";
import { readPackedShapes } from "../../../dist/src/checkpoints/stored/packed-shapes.js";
import {
  permuted,
  readScales,
  type Scales,
  scaleFormat,
  scaleOf,
} from "../../../dist/src/checkpoints/stored/scales.js";
import { matricesOf } from "../../../dist/src/checkpoints/stored/weight.js";
import { valueOfCode } from "../../../dist/src/formats/derive.js";
import type { ScalarFormat } from "../../../dist/src/formats/scalar.js";
import type { TensorSource } from "../../../dist/src/io/source.js";
import { elementCount } from "../../../dist/src/tensor/shape.js";
import { MAX_SIZE } from "./numbers.js";
import type { Range, Stored } from "./stored.js";

/** The names of configurations, as `claimIn` takes them. */
const CONFIGURATIONS = ["config.json", "hf_quant_config.json"] as const;

/** A quantized weight, with its findings. */
export interface Weight extends RecognizedWeight {
  readonly notes: readonly string[];
}

/** The claims of the configurations. Throws `FileError` for one that cannot be parsed, or whose name is unknown. */
export async function claimOf(files: readonly File[]): Promise<Claim | undefined> {
  const other = files.find(({ name }) => !CONFIGURATIONS.some((each) => each === name));
  if (other)
    throw new FileError(
      `${other.name}: the page opens one file, and ${CONFIGURATIONS.join(" and ")} beside it`,
    );
  const [model, modelopt] = await Promise.all(
    CONFIGURATIONS.map(async (name) => {
      const file = files.find((each) => each.name === name);
      return file && parseObject(name, await file.text());
    }),
  );
  return claimIn(CONFIGURATIONS, model, modelopt);
}

/** The quantized weights of a file, and the tensors that have no values of their own, each with the reason. */
export async function recognized(
  file: TensorSource,
  claim: Claim | undefined,
): Promise<{
  readonly weights: ReadonlyMap<string, Weight>;
  readonly faults: ReadonlyMap<string, string>;
}> {
  const tensors = new Map(Array.from(file.tensors, ([name, entry]) => [name, { entry, shard: file }]));
  const checkpoint = { shards: [file], tensors, metadata: file.metadata };
  const found = recognize(checkpoint, claim, { facts: await readPackedShapes(checkpoint) });
  const weights = new Map<string, Weight>();
  const faults = new Map<string, string>();
  for (const weight of found.weights) {
    const { name, codes, scale, global } = weight;
    const unread = unreadParts(weight);
    if (unread.length > 0) {
      const why = `${nameOf(weight.convention)}. ${NOT_SHOWN}`;
      for (const part of unread) faults.set(part, why);
      continue;
    }
    const findings = found.findings.filter(({ subject }) => subject === name).map(sentence);
    weights.set(name, { ...weight, notes: [...conventionNotes(weight, claim), ...findings] });
    for (const part of [codes, scale, ...(global ? [global] : [])])
      faults.set(part.entry.name, `${part.entry.name} is part of ${name}, which the page shows.`);
  }
  const hint = claim ? "" : ` ${DROP_TOO}`;
  for (const { parts, findings, convention } of found.unfit)
    for (const part of parts)
      faults.set(part, `${[`${nameOf(convention)}.`, ...findings.map(sentence)].join(" ")}${hint}`);
  for (const each of found.findings)
    if (each.severity === "error" && file.tensors.has(each.subject) && !weights.has(each.subject))
      faults.set(each.subject, faults.get(each.subject) ?? sentence(each));
  return { weights, faults };
}

const NOT_SHOWN = "The page does not show such codes; lockstep convert reads them.";

/** The tensors of a weight whose codes the page does not read: packed otherwise, with zero points, or factors of columns. */
function unreadParts(weight: RecognizedWeight): string[] {
  const { codes, scale, global, zeros, order, factors } = weight;
  const besides = [zeros, order, factors].flatMap((each) => (each ? [each] : []));
  if (isElementwise(weight) && besides.length === 0) return [];
  return [codes, scale, ...(global ? [global] : []), ...besides].map(({ entry }) => entry.name);
}

const DROP_TOO = `Drop ${CONFIGURATIONS[0]} together with the file, which may say more.`;

function sentence({ subject, what, remedy }: Finding): string {
  return `${subject}: ${what}; ${remedy}.`;
}

function nameOf(convention: RecognizedWeight["convention"]): string {
  return `${convention}: ${conventionOf(convention).summary}`;
}

/** What the configuration says of a convention; without one, which others fit. */
function conventionNotes({ convention, fits }: RecognizedWeight, claim: Claim | undefined): string[] {
  if (claim) {
    const said = `${claim.path} says ${[claim.method || "no quant_method", ...claim.formats].join(", ")}`;
    return [
      declares(convention, claim) ? `${said}.` : `${said}, which is not the convention of the tensors.`,
    ];
  }
  if (fits.length === 1) return [];
  return [
    `Without ${CONFIGURATIONS[0]} these fit: ${fits.map(nameOf).join("; ")}. The first is taken. ${DROP_TOO}`,
  ];
}

/**
 * Reads the part of a weight from (row, column) on, seen as a matrix: within one matrix of a stack, as much as the page shows. It
 * begins with a block, unless one block is all of a line or more than the page shows. Throws an error for an empty weight.
 */
export async function readWeight(weight: Weight, [row, column]: readonly [number, number]): Promise<Stored> {
  const { type, geometry, shape, codes: stored, scale } = weight;
  const [matrices, height, width] = matricesOf(shape);
  if (matrices * height * width === 0) throw new Error(`${weight.name} is empty: [${shape}]`);
  const first = Math.min(row, matrices * height - 1);
  const matrix = Math.floor(first / height);
  const rows = rangeOf(first % height, height, geometry.block[0]);
  const columns = rangeOf(column, width, geometry.block[1]);
  const top = matrix * height + rows.from;
  const { bits, values: worth } = CODE_TYPES[type];
  const codes = new Uint32Array(rows.size * columns.size);
  for (let line = 0; line < rows.size; line++) {
    const { offset, begin, end } = bytesOfCodes((top + line) * width + columns.from, columns.size, bits);
    const bytes = await stored.shard.read(stored.entry, begin, end);
    const unpacked = new Uint8Array(offset + columns.size);
    unpackCodes(CODE_TYPES[type], bytes, unpacked);
    codes.set(unpacked.subarray(offset), line * columns.size);
  }
  const all = await readScales(weight);
  const allCodes = codesOfScales(weight, await scale.shard.read(scale.entry));
  const [lines, blocks] = [Math.ceil(rows.size / rows.block), Math.ceil(columns.size / columns.block)];
  const places = Array.from({ length: lines * blocks }, (_, i) => {
    const [line, block] = [Math.floor(i / blocks), i % blocks];
    return scaleIndexOf(
      geometry,
      matrix,
      rows.from + line * rows.block,
      columns.from + block * columns.block,
    );
  });
  const scales = Float32Array.from(places, (at) => all.values[at] as number);
  const elements = Float32Array.from(codes, (code) => worth[code] as number);
  const values = elements.map((element, at) => {
    const line = Math.floor(Math.floor(at / columns.size) / rows.block);
    const block = Math.floor((at % columns.size) / columns.block);
    return element * scaleOf(all, scales[line * blocks + block] as number);
  });
  // only GGUF has types that are not formats
  const format = type as ScalarFormat;
  return {
    format,
    rows: rows.size,
    columns: columns.size,
    codes,
    elements,
    values,
    block: { rows: rows.block, columns: columns.block },
    scales: {
      format: scale.entry.dtype === "F32" ? "f32" : scaleFormat(scale.entry.dtype),
      blocks,
      codes: Uint32Array.from(places, (at) => allCodes[at] as number),
      values: scales,
      lineRows: rows.block,
      ...(all.storedGlobal === undefined ? {} : { whole: all.storedGlobal }),
    },
    from: [top, columns.from],
    description: describe(weight, all),
    notes: weight.notes,
    hasFields: worth.every((value, code) => Object.is(value, valueOfCode(format, code))),
  };
}

/** The bytes that hold some codes, and how many codes lie in them before the first one: eight of any type begin at a byte. */
export function bytesOfCodes(first: number, count: number, bits: number) {
  const offset = first % 8;
  return { offset, begin: ((first - offset) * bits) / 8, end: Math.ceil(((first + count) * bits) / 8) };
}

/** What is shown of rows or columns from an index on, and how many of them share a scale. */
function rangeOf(at: number, count: number, block: number): Range & { readonly block: number } {
  const here = Math.min(at, count - 1);
  const begin = here - (here % block);
  if (block < count && block <= MAX_SIZE)
    return { from: begin, size: Math.min(MAX_SIZE, count - begin), block };
  const size = Math.min(MAX_SIZE, count - here, begin + block - here);
  return { from: here, size, block: size };
}

/** The codes of scales, row by row, matrix by matrix; of f32 scales, their bits. */
function codesOfScales({ shape, geometry, scale }: Weight, bytes: Uint8Array): Uint32Array {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const count = elementCount(scale.entry.shape);
  const width = bytes.length / count;
  const codes = Uint32Array.from({ length: count }, (_, i) => {
    if (width === 4) return view.getUint32(4 * i, true);
    return width === 2 ? view.getUint16(2 * i, true) : view.getUint8(i);
  });
  return geometry.swizzled ? permuted(codes, matricesOf(shape)[0], geometry.grid) : codes;
}

function describe({ convention, type, shape, geometry, codes, scale, global }: Weight, { divides }: Scales) {
  const { summary, source } = conventionOf(convention);
  const [rows, columns] = geometry.block;
  const whole = global ? `, ${divides ? "divided" : "multiplied"} by ${global.entry.name}` : "";
  return (
    `${convention}: ${summary} (${source}). ${type} codes of ${codes.entry.name}, a ${scale.entry.dtype} scale of ` +
    `${scale.entry.name}${whole} for each ${rows} × ${columns}${geometry.swizzled ? ", swizzled" : ""}, of a tensor ` +
    `[${shape.join(", ")}]`
  );
}
