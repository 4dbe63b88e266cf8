/** Prints the reports of checkpoints. */
import type {
  CheckpointReport,
  Finding,
  InspectCheckpointOptions,
  LockstepWeightReport,
  WeightReport,
} from "../checkpoints/index.js";
import { CONVENTION_NAMES, type ConventionName } from "../checkpoints/stored/conventions.js";
import type { Option } from "./options.js";
import { oneOf, optional, someText } from "./options.js";
import type { Session } from "./session.js";
import { tensorsOption } from "./tensor-globs.js";

/** The options of commands that read the codes of a checkpoint. */
export const READING = {
  tensors: tensorsOption("read the codes of these quantized tensors only"),
  original: optional({
    placeholder: "PATH",
    help: "the checkpoint that was quantized, in F32, F16 or BF16, or quantized itself; values are compared with it",
    file: "read",
    parse: someText,
  }) satisfies Option<string | undefined>,
  as: optional({
    placeholder: "CONVENTION",
    help: "read every quantized weight as of this convention, whatever its tensors look like",
    parse: oneOf(CONVENTION_NAMES),
  }) satisfies Option<ConventionName | undefined>,
} as const;

interface Reading {
  readonly tensors: readonly string[] | undefined;
  readonly original: string | undefined;
  readonly as: ConventionName | undefined;
}

/** Calls a function of `lockstep/checkpoints` with the options of a command and a progress bar. */
export async function withProgress<T>(
  session: Session,
  { tensors, original, as }: Reading,
  read: (options: InspectCheckpointOptions) => Promise<T>,
): Promise<T> {
  const bar = session.transferBar();
  try {
    return await read({ tensors, original, as, onProgress: bar.report });
  } finally {
    bar.finish();
  }
}

/** The JSON output for a report. */
export function reportJson({ weights, lockstepWeights, unquantized, findings, ...report }: CheckpointReport) {
  const { elements, bitsPerWeight, ...otherFields } = report;
  const lockstepNames = Object.keys(lockstepWeights);
  return {
    ...otherFields,
    own: lockstepNames,
    recipes: lockstepWeights,
    unquantized,
    elements,
    bitsPerWeight,
    weights,
    findings,
  };
}

/** The checkpoint that a command read, for the JSON of an error. */
export const readPath = ([path]: readonly string[]) => ({ path });

/** A finding in one line. */
export function findingLine({ severity, name, subject, what, remedy }: Finding): string {
  return `${severity} ${name}: ${subject}: ${what}; ${remedy}`;
}

const percent = (share: number): string => `${(100 * share).toPrecision(3)} %`;
const number = (value: number): string => Number(value.toPrecision(4)).toString();

const minimum = (values: readonly number[]): number => values.reduce((a, b) => Math.min(a, b), Infinity);
const maximum = (values: readonly number[]): number => values.reduce((a, b) => Math.max(a, b), -Infinity);

/** A quantized weight in one line. */
export function weightLine(weight: WeightReport): string {
  const { name, convention, type, shape, scaleKind, block, bits, scales, codesUsed, codesOfType } = weight;
  const granularity = ["tile", "group"].includes(scaleKind)
    ? `${scaleKind} of ${block.join("x")}`
    : scaleKind;
  const { global: globalScale, globals: globalScales } = scales;
  const global = globalScale === undefined ? "" : `, global ${number(globalScale)}`;
  const ofMatrices = globalScales
    ? `, ${globalScales.length} globals ${number(minimum(globalScales))} to ${number(maximum(globalScales))}`
    : "";
  const error = weight.error ? `, relative error ${weight.error.relative.toPrecision(3)}` : "";
  return [
    `${name}: ${convention}, ${type} [${shape}], a scale for each ${granularity}, ${number(bits)} bits a weight`,
    `scales ${number(scales.min)} to ${number(scales.max)}${global}${ofMatrices}`,
    `codes ${codesUsed} of ${codesOfType}, ${percent(weight.zeros)} zero, ${percent(weight.saturated)} saturated`,
    `amax ${number(weight.amax)}, rms ${number(weight.rms)}${error}`,
  ].join("; ");
}

function recipeText(recipe: LockstepWeightReport): string {
  return `, ${recipe.quantizer}, ${recipe.format} [${recipe.shape}], ${recipe.usage.join(" and ")}`;
}

/** The lines about the entire checkpoint. */
export function wholeLines(report: CheckpointReport): string[] {
  const { shards, tensors, weights, unquantized, elements, bitsPerWeight, claim } = report;
  const lockstepWeights = Object.entries(report.lockstepWeights);
  const claimText = claim ? [claim.method, ...claim.formats].join(", ") : "none";
  const metadata = report.gguf?.metadata ?? {};
  const architecture = metadata["general.architecture"] ?? "no architecture";
  const gguf = report.gguf
    ? [`GGUF version ${report.gguf.version}: ${architecture}, ${Object.keys(metadata).length} metadata`]
    : [];
  const wide = unquantized.map(({ name, dtype, shape, layout }) =>
    layout
      ? `packed as ${layout}, read as F32: ${name} [${shape}]`
      : `unquantized: ${name} ${dtype} [${shape}]`,
  );
  return [
    `${report.path}: ${tensors} tensors in ${shards} shards, ${elements} weights of ${number(bitsPerWeight)} bits`,
    ...gguf,
    `configuration: ${claimText}; ${weights.length + lockstepWeights.length} quantized, ${unquantized.length} not`,
    ...wide,
    ...lockstepWeights.map(([name, recipe]) => `quantized by lockstep: ${name}${recipeText(recipe)}`),
  ];
}
