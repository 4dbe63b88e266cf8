/** Quantized weights of other libraries in a file: selects those that the page shows, and reads a region of one. */
import { FileError, type ScalarFormat } from "lockstep";
import {
  type Checkpoint,
  CONVENTION_SUMMARIES,
  type ConventionName,
  type Finding,
  type MatrixRegion,
  type StoredWeight,
  type WeightRegion,
} from "lockstep/checkpoints/portable";
import { MAX_SIZE } from "./numbers.js";
import type { Range, Stored } from "./stored.js";

const CONFIG = "config.json";
const QUANT_CONFIG = "hf_quant_config.json";

/** A quantized weight and notes about it. */
export interface Weight extends StoredWeight {
  readonly notes: readonly string[];
}

/** The contents of the configurations. Throws `FileError` for a file with another name. */
export async function configurationsIn(files: readonly File[]): Promise<{
  readonly modelConfig?: string;
  readonly quantConfig?: string;
}> {
  const other = files.find(({ name }) => name !== CONFIG && name !== QUANT_CONFIG);
  if (other)
    throw new FileError(
      `${other.name}: the page opens one file, and ${CONFIG} and ${QUANT_CONFIG} beside it`,
    );
  const [modelConfig, quantConfig] = await Promise.all(
    [CONFIG, QUANT_CONFIG].map((name) => files.find((file) => file.name === name)?.text()),
  );
  return {
    ...(modelConfig === undefined ? {} : { modelConfig }),
    ...(quantConfig === undefined ? {} : { quantConfig }),
  };
}

/** The quantized weights of a file that the page shows, and why other tensors are meaningless by themselves. */
export function weightsIn({ weights: all, unfit, findings, claim, tensors }: Checkpoint): {
  readonly weights: ReadonlyMap<string, Weight>;
  readonly faults: ReadonlyMap<string, string>;
} {
  const weights = new Map<string, Weight>();
  const faults = new Map<string, string>();
  for (const weight of all.values()) {
    const { name, codes, scale, global, companions } = weight;
    const parts = [codes, scale, ...(global ? [global] : [])].map((entry) => entry.name);
    if (!weight.isElementwise) {
      for (const part of [...parts, ...companions])
        faults.set(part, `${nameOf(weight.convention)}. ${NOT_SHOWN}`);
      continue;
    }
    const found = findings.filter(({ subject }) => subject === name).map(sentence);
    weights.set(name, { ...weight, notes: [...conventionNotes(weight, claim), ...found] });
    for (const part of parts) faults.set(part, `${part} is part of ${name}, which the page shows.`);
  }
  const hint = claim ? "" : ` ${DROP_TOO}`;
  for (const { parts, findings: reasons, convention } of unfit)
    for (const part of parts)
      faults.set(part, `${[`${nameOf(convention)}.`, ...reasons.map(sentence)].join(" ")}${hint}`);
  for (const each of findings)
    if (each.severity === "error" && tensors.has(each.subject) && !weights.has(each.subject))
      faults.set(each.subject, faults.get(each.subject) ?? sentence(each));
  return { weights, faults };
}

const NOT_SHOWN = "The page does not show such codes; lockstep convert reads them.";
const DROP_TOO = `Drop ${CONFIG} together with the file, which may say more.`;

function sentence({ subject, what, remedy }: Finding): string {
  return `${subject}: ${what}; ${remedy}.`;
}

function nameOf(convention: ConventionName): string {
  return `${convention}: ${CONVENTION_SUMMARIES[convention].summary}`;
}

/** The configuration's declaration of a convention; without a configuration, the conventions that fit. */
function conventionNotes({ isDeclared, fits }: StoredWeight, claim: Checkpoint["claim"]): string[] {
  if (claim) {
    const said = `${claim.path} says ${[claim.method || "no quant_method", ...claim.formats].join(", ")}`;
    return [isDeclared ? `${said}.` : `${said}, which is not the convention of the tensors.`];
  }
  if (fits.length === 1) return [];
  return [`Without ${CONFIG} these fit: ${fits.map(nameOf).join("; ")}. The first is taken. ${DROP_TOO}`];
}

/** Reads a region of a weight. */
export type ReadWeight = (name: string, region: MatrixRegion) => Promise<WeightRegion>;

/**
 * Reads the region of a weight that the page shows, beginning near [row, column], within one matrix of a stack. It begins at a
 * block, unless a block spans a line or is larger than the page shows. Throws an error for an empty weight.
 */
export async function readWeight(
  read: ReadWeight,
  weight: Weight,
  [row, column]: readonly [number, number],
): Promise<Stored> {
  const { name, type, block, shape } = weight;
  const width = shape.at(-1) ?? 1;
  const height = shape.at(-2) ?? 1;
  const matrices = shape.slice(0, -2).reduce((product, size) => product * size, 1);
  if (matrices * height * width === 0) throw new Error(`${name} is empty: [${shape}]`);
  const first = Math.min(row, matrices * height - 1);
  const rows = rangeOf(first % height, height, block[0]);
  const columns = rangeOf(column, width, block[1]);
  const top = first - (first % height) + rows.from;
  const region = { row: top, column: columns.from, rows: rows.size, columns: columns.size };
  const { codes, elements, values, scales } = await read(name, region);
  return {
    // GGUF has code types that are not formats, but the page does not open GGUF
    format: type as ScalarFormat,
    rows: rows.size,
    columns: columns.size,
    codes,
    elements,
    values,
    block: { rows: rows.block, columns: columns.block },
    scales: {
      format: scales.format,
      blocks: scales.blocks,
      codes: scales.codes,
      values: scales.values,
      lineRows: rows.block,
      ...(scales.global === undefined ? {} : { whole: scales.global }),
    },
    from: [top, columns.from],
    description: describe(weight),
    notes: weight.notes,
    hasFields: weight.format !== undefined,
  };
}

/** The rows or columns that are shown from an index on, and the number of them that share a scale. */
function rangeOf(at: number, count: number, block: number): Range & { readonly block: number } {
  const here = Math.min(at, count - 1);
  const begin = here - (here % block);
  if (block < count && block <= MAX_SIZE)
    return { from: begin, size: Math.min(MAX_SIZE, count - begin), block };
  const size = Math.min(MAX_SIZE, count - here, begin + block - here);
  return { from: here, size, block: size };
}

function describe({ convention, type, shape, block, swizzled, codes, scale, global, globalRole }: Weight) {
  const { summary, source } = CONVENTION_SUMMARIES[convention];
  const [rows, columns] = block;
  const whole = global ? `, ${globalRole === "divisor" ? "divided" : "multiplied"} by ${global.name}` : "";
  return (
    `${convention}: ${summary} (${source}). ${type} codes of ${codes.name}, a ${scale.dtype} scale of ` +
    `${scale.name}${whole} for each ${rows} × ${columns}${swizzled ? ", swizzled" : ""}, of a tensor ` +
    `[${shape.join(", ")}]`
  );
}
