/** Everything that is to be said about a checkpoint. */
import type { PackedLayoutName } from "../dialects/packed/packed.js";
import { type FileDType, fileBytes } from "../io/dtypes.js";
import type { Direction, QuantizeSpec, ScaleLayout } from "../tensor/quantized.js";
import { elementCount, type Shape, type WideDType } from "../tensor/shape.js";
import { type GgufFacts, packedAs } from "./gguf/file.js";
import { judgeClaims } from "./judge/config/claims.js";
import { judgeScaleFormat } from "./judge/config/schemes.js";
import { type Finding, finding } from "./judge/findings.js";
import {
  type Comparison,
  compareOriginal,
  type Original,
  type OriginalError,
} from "./judge/original/compare.js";
import type { ScaleStatistics } from "./judge/statistics/scale-counter.js";
import { statisticsOf } from "./judge/statistics/statistics.js";
import { judgeActivationScales } from "./judge/weights/activation-scales.js";
import { judgeStatistics } from "./judge/weights/from-statistics.js";
import { FusedScales } from "./judge/weights/fused.js";
import { judgePacked, packedBytes } from "./judge/weights/packed.js";
import { judgeStack } from "./judge/weights/stacks.js";
import { Kernels } from "./kernels/kernels.js";
import { type Recognized, type RecognizedWeight, recognize } from "./recognize/recognize.js";
import { readByteScales } from "./stored/byte-scales.js";
import { CODE_TYPES, type CodeTypeName } from "./stored/code-types.js";
import type { Claim } from "./stored/config/claim.js";
import { type Configuration, readConfiguration } from "./stored/config/config.js";
import type { ConventionName, ScaleKind } from "./stored/conventions.js";
import { type ElementwiseWeight, toElementwise } from "./stored/elementwise.js";
import type { Checkpoint } from "./stored/open.js";
import { readPackedShapes } from "./stored/packed-shapes.js";
import { readScales } from "./stored/scales.js";
import type { QuantizedWeight } from "./stored/weight.js";
import { sourcesOf } from "./values/source.js";

/** A quantized weight and its statistics. */
export interface WeightReport {
  readonly name: string;
  readonly convention: ConventionName;
  readonly type: CodeTypeName;
  readonly shape: Shape;
  readonly scaleKind: ScaleKind;
  readonly block: readonly [number, number];
  readonly swizzled: boolean;
  /** Bits of codes and scales per element. */
  readonly bits: number;
  readonly scales: ScaleStatistics & {
    readonly dtype: FileDType;
    readonly global?: number;
    /** Those of matrices, where each has one of its own. */
    readonly globals?: readonly number[];
  };
  /** Codes that occur, of those that there are. */
  readonly codesUsed: number;
  readonly codesOfType: number;
  /** Shares of elements that are zero, have the largest code, or are NaN. */
  readonly zeros: number;
  readonly saturated: number;
  readonly nans: number;
  readonly amax: number;
  readonly rms: number;
  readonly error?: OriginalError;
}

/** A tensor without a quantization. */
export interface PlainReport {
  readonly name: string;
  readonly dtype: FileDType;
  readonly shape: Shape;
  /** The layout of a packed tensor of a GGUF file, whose values are read as F32. */
  readonly layout?: PackedLayoutName;
}

/** How a tensor is quantized that this library wrote. */
export interface OwnReport extends Pick<QuantizeSpec, "quantizer" | "format" | "tile"> {
  readonly shape: Shape;
  /** The type before quantization. */
  readonly dtype: WideDType;
  readonly scales: ScaleLayout;
  readonly usage: readonly Direction[];
}

/** What is known of a checkpoint. */
export interface CheckpointReport {
  readonly path: string;
  readonly shards: number;
  readonly tensors: number;
  /** What a GGUF file says of itself. */
  readonly gguf?: GgufFacts;
  /** What the configuration claims. */
  readonly claim?: Pick<Claim, "path" | "method" | "formats" | "block" | "group">;
  readonly weights: readonly WeightReport[];
  /** The names of quantized tensors that this library wrote. */
  readonly own: readonly string[];
  /** How each of them is quantized, by its name. */
  readonly recipes: Readonly<Record<string, OwnReport>>;
  readonly unquantized: readonly PlainReport[];
  /** The elements of all weights and plain tensors, and the bits of the file for each. */
  readonly elements: number;
  readonly bitsPerWeight: number;
  readonly findings: readonly Finding[];
}

/** What to do beside. */
export interface InspectOptions {
  /** The weights to read; the others are recognized, but have no statistics. Default: all. */
  readonly wanted?: (name: string) => boolean;
  /** What reads them. Default: kernels of its own. */
  readonly kernels?: Kernels;
  readonly original?: Checkpoint | undefined;
  /** Called with the bytes that have been read. */
  readonly onBytes?: (count: number) => void;
}

/** A checkpoint with its tensors sorted, and its configuration. */
export interface Surveyed extends Recognized {
  readonly claim?: Claim;
}

/** Reads the configuration and sorts the tensors; weights are of the convention `as`, if one is given. Reads no codes. */
export async function survey(checkpoint: Checkpoint, as?: ConventionName): Promise<Surveyed> {
  const configuration: Configuration = checkpoint.gguf
    ? { present: false, findings: [] }
    : await readConfiguration(checkpoint.folder);
  const { claim } = configuration;
  const facts = await readPackedShapes(checkpoint);
  const found = recognize(checkpoint, claim, { facts, as });
  const natural = as === undefined ? [] : recognize(checkpoint, claim, { facts }).weights;
  const unpacked: ElementwiseWeight<RecognizedWeight>[] = [];
  for (const weight of found.weights) unpacked.push(await toElementwise(weight));
  const recognized = { ...found, weights: unpacked.map(({ weight }) => weight) };
  const findings = [
    ...checkpoint.findings,
    ...configuration.findings,
    ...recognized.findings,
    ...forced(as, natural),
    ...unpacked.flatMap((each) => each.findings),
    ...judgeClaims(checkpoint, configuration, recognized),
  ];
  return { ...recognized, findings, ...(claim ? { claim } : {}) };
}

/** Notes about weights that have another convention by their tensors. */
function forced(as: ConventionName | undefined, natural: readonly RecognizedWeight[]): Finding[] {
  const others = new Map<ConventionName, string>();
  for (const { name, convention } of natural)
    if (convention !== as && !others.has(convention)) others.set(convention, name);
  return [...others].map(([convention, name]) =>
    finding("convention-forced", name, `is read as ${as}; by its tensors it is ${convention}`),
  );
}

/** The number of bytes of codes that `inspect` will read. */
export function bytesOfCodes({ weights, plain }: Recognized, wanted: (name: string) => boolean): number {
  const codes = weights
    .filter(({ name }) => wanted(name))
    .map(({ codes: { entry } }) => entry.end - entry.begin);
  const packed = plain.filter(({ entry }) => wanted(entry.name)).map(packedBytes);
  return [...codes, ...packed].reduce((sum, bytes) => sum + bytes, 0);
}

/** Reads all codes and scales, and reports. Throws `FileError` if a file cannot be read. */
export async function inspect(
  checkpoint: Checkpoint,
  surveyed: Surveyed,
  { wanted = () => true, kernels: shared, original, onBytes = () => {} }: InspectOptions = {},
): Promise<CheckpointReport> {
  const findings: Finding[] = [...surveyed.findings, ...(await judgeActivationScales(checkpoint))];
  let opened = shared;
  const kernels = async (): Promise<Kernels> => {
    opened ??= await Kernels.open();
    return opened;
  };
  const against = original && (await readOriginal(original));
  const fused = new FusedScales();
  const weights: WeightReport[] = [];
  for (const weight of surveyed.weights) {
    if (!wanted(weight.name)) continue;
    const scales = (await readByteScales(await kernels(), weight)) ?? (await readScales(weight));
    const found = await statisticsOf(await kernels(), weight, scales, onBytes);
    fused.add(weight, scales);
    const ofStack = await judgeStack(weight, scales);
    const compared: Comparison = against
      ? await compareOriginal(await kernels(), weight, await readScales(weight), against)
      : { findings: [] };
    const judged = [
      ...judgeStatistics(weight, found, scales, isExplained(compared)),
      ...ofStack,
      ...judgeScaleFormat(surveyed.claim, weight, found.scale),
    ];
    findings.push(...merged(judged, compared.findings));
    const share = (count: number): number => (found.elements === 0 ? 0 : count / found.elements);
    const error = compared.error ? { error: compared.error } : {};
    const global = scales.storedGlobal === undefined ? {} : { global: scales.storedGlobal };
    const globals = scales.storedGlobals ? { globals: [...scales.storedGlobals] } : {};
    weights.push({
      ...described(weight),
      scales: { dtype: weight.scale.entry.dtype, ...found.scale, ...global, ...globals },
      codesUsed: found.codesUsed,
      codesOfType: CODE_TYPES[weight.type].values.length,
      zeros: share(found.zeros),
      saturated: share(found.saturated),
      nans: share(found.nans),
      amax: found.amax,
      rms: found.rms,
      ...error,
    });
  }
  for (const stored of surveyed.plain)
    if (packedBytes(stored) > 0 && wanted(stored.entry.name))
      findings.push(...(await judgePacked(stored, onBytes)));
  findings.push(...fused.findings());
  if (against && weights.length > 0 && weights.every(({ error }) => error === undefined))
    findings.push(
      finding("nothing-compared", against.path, `has none of the ${weights.length} quantized weights`),
    );
  return { ...wholeOf(checkpoint, surveyed), weights, findings };
}

/** The weights of the original, by their values. */
async function readOriginal(checkpoint: Checkpoint): Promise<Original> {
  const { weights, plain } = await survey(checkpoint);
  return { path: checkpoint.path, sources: sourcesOf(weights, plain) };
}

/** Whether the original says what a weight is, so that nothing has to be concluded from circumstances. */
function isExplained({ error, findings }: Comparison): boolean {
  return error !== undefined && findings.every(({ name }) => name !== "values-apart");
}

/** The findings about a weight. What has a cause is not said to be apart as well. */
function merged(judged: readonly Finding[], compared: readonly Finding[]): Finding[] {
  const hasCause = judged.some(({ severity }) => severity === "error");
  const others = compared.filter(
    ({ name }) => !(hasCause && name === "values-apart") && judged.every((each) => each.name !== name),
  );
  return [...judged, ...others];
}

function described(weight: QuantizedWeight) {
  const { name, convention, type, shape, geometry, codes, scale, global, unpacked } = weight;
  const bytes = [...(unpacked?.from ?? [codes, scale]), ...(global ? [global] : [])].reduce(
    (sum, { entry }) => sum + fileBytes(entry.dtype, entry.shape),
    0,
  );
  const elements = elementCount(shape);
  return {
    name,
    convention,
    type: unpacked?.type ?? type,
    shape,
    scaleKind: geometry.kind,
    block: geometry.block,
    swizzled: geometry.swizzled,
    bits: elements === 0 ? 0 : (8 * bytes) / elements,
  };
}

function wholeOf(
  { path, shards, tensors, gguf }: Checkpoint,
  { claim, weights, lockstepWeights: own, plain }: Surveyed,
): Omit<CheckpointReport, "weights" | "findings"> {
  const elements = [
    ...weights.map(({ shape }) => shape),
    ...own.map(({ recipe }) => recipe.shape),
    ...plain.map(({ entry }) => entry.shape),
  ].reduce((sum, shape) => sum + elementCount(shape), 0);
  let bytes = 0;
  for (const { entry, shard } of tensors.values())
    bytes += packedAs(shard, entry.name)?.bytes ?? entry.end - entry.begin;
  const shown = claim && {
    path: claim.path,
    method: claim.method,
    formats: claim.formats,
    ...(claim.block ? { block: claim.block } : {}),
    ...(claim.group === undefined ? {} : { group: claim.group }),
  };
  return {
    path,
    shards: shards.length,
    tensors: gguf?.tensors ?? tensors.size,
    ...(gguf ? { gguf } : {}),
    ...(shown ? { claim: shown } : {}),
    own: own.map(({ name }) => name),
    recipes: Object.fromEntries(
      own.map(({ name, recipe: { spec, shape, dtype, scales, usage } }) => [
        name,
        { quantizer: spec.quantizer, format: spec.format, tile: spec.tile, shape, dtype, scales, usage },
      ]),
    ),
    unquantized: plain.map(({ entry: { name, dtype, shape }, shard }) => {
      const packed = packedAs(shard, name);
      return { name, dtype, shape, ...(packed ? { layout: packed.layout } : {}) };
    }),
    elements,
    bitsPerWeight: elements === 0 ? 0 : (8 * bytes) / elements,
  };
}
