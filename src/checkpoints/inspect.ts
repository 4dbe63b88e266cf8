/** Reads the codes and scales of an open checkpoint, and reports statistics and findings. */
import { fileBytes } from "../io/dtypes.js";
import { elementCount } from "../tensor/shape.js";
import { packedAs } from "./gguf/file.js";
import { judgeScaleFormat } from "./judge/config/schemes.js";
import { type Finding, finding } from "./judge/findings.js";
import { type Comparison, compareOriginal, type Original } from "./judge/original/compare.js";
import type { OnCodes } from "./judge/statistics/code-sums.js";
import { type Statistics, statisticsOf } from "./judge/statistics/statistics.js";
import { judgeActivationScales } from "./judge/weights/activation-scales.js";
import { judgeStatistics } from "./judge/weights/from-statistics.js";
import { FusedScales } from "./judge/weights/fused.js";
import { judgePacked, packedBytes } from "./judge/weights/packed.js";
import { judgeStack } from "./judge/weights/stacks.js";
import { Kernels } from "./kernels/kernels.js";
import type { Recognized, RecognizedWeight } from "./recognize/recognize.js";
import { type CheckpointReport, lockstepReport, type WeightReport } from "./report.js";
import { readByteScales } from "./stored/byte-scales.js";
import { CODE_TYPES } from "./stored/code-types.js";
import { summaryOfClaim } from "./stored/config/claim.js";
import type { CheckpointFiles } from "./stored/files.js";
import { readScales } from "./stored/scales.js";
import type { QuantizedWeight } from "./stored/weight.js";
import { type Survey, surveyFiles } from "./survey.js";
import { sourcesOf } from "./values/source.js";

/** Options of `inspectFiles`. */
export interface InspectOptions {
  /** Selects the weights to read. The other weights are recognized, but have no statistics. Default: all weights. */
  readonly isSelected?: (name: string) => boolean;
  /** The kernels that compute statistics. Default: the function opens kernels when it needs them. */
  readonly kernels?: Kernels | undefined;
  /** The checkpoint before quantization. Values are compared with it. */
  readonly original?: CheckpointFiles | undefined;
  /** Whether only errors are needed, so that statistics for other findings and for reports may be omitted. Default: false. */
  readonly onlyErrors?: boolean;
  /** Called with the number of bytes of each read. */
  readonly onBytes?: (count: number) => void;
}

/** The number of bytes of codes that `inspectFiles` will read. */
export function bytesOfCodes({ weights, plain }: Recognized, isSelected: (name: string) => boolean): number {
  const codes = weights
    .filter(({ name }) => isSelected(name))
    .map(({ codes: { entry } }) => entry.end - entry.begin);
  const packed = plain.filter(({ entry }) => isSelected(entry.name)).map(packedBytes);
  return [...codes, ...packed].reduce((sum, bytes) => sum + bytes, 0);
}

/** Reads the codes and scales of the selected weights. Throws `FileError` if a file cannot be read. */
export async function inspectFiles(
  checkpoint: CheckpointFiles,
  survey: Survey,
  options: InspectOptions = {},
): Promise<CheckpointReport> {
  const { isSelected = () => true, original, onBytes = () => {} } = options;
  const findings: Finding[] = [...survey.findings, ...(await judgeActivationScales(checkpoint))];
  const originalTensors = original && (await readOriginal(original));
  const inspector = new WeightInspector(survey, originalTensors, options);
  const weights: WeightReport[] = [];
  for (const weight of survey.weights) {
    if (!isSelected(weight.name)) continue;
    const inspected = await inspector.inspect(weight);
    weights.push(inspected.report);
    findings.push(...inspected.findings);
  }
  for (const tensor of survey.plain)
    if (packedBytes(tensor) > 0 && isSelected(tensor.entry.name))
      findings.push(...(await judgePacked(tensor, onBytes)));
  findings.push(...inspector.fused.findings());
  if (original && weights.length > 0 && weights.every(({ error }) => error === undefined))
    findings.push(
      finding("nothing-compared", original.path, `has none of the ${weights.length} quantized weights`),
    );
  return { ...checkpointSummary(checkpoint, survey), weights, findings };
}

/** The report, findings and statistics of one weight. */
interface Inspected {
  readonly report: WeightReport;
  readonly findings: readonly Finding[];
  readonly statistics: Statistics;
}

/** Inspects weights one after the other with the same kernels. */
export class WeightInspector {
  /** Compares the global scales of projections that loaders fuse. */
  readonly fused = new FusedScales();
  #kernels: Kernels | undefined;

  constructor(
    private readonly survey: Survey,
    private readonly original: Original | undefined,
    private readonly options: InspectOptions,
  ) {
    this.#kernels = options.kernels;
  }

  /** Reads the codes of a weight once, and its scales. `onCodes` is called with the stored bytes of the codes, in order. */
  async inspect(weight: RecognizedWeight, onCodes?: OnCodes): Promise<Inspected> {
    this.#kernels ??= await Kernels.open();
    const kernels = this.#kernels;
    const scales = (await readByteScales(kernels, weight)) ?? (await readScales(weight));
    const { onlyErrors = false, onBytes } = this.options;
    const onRead = onCodes ?? ((bytes: Uint8Array) => onBytes?.(bytes.length));
    const statistics = await statisticsOf(kernels, weight, scales, onRead, { isUncounted: onlyErrors });
    this.fused.add(weight, scales);
    const stackFindings = await judgeStack(weight, scales);
    const comparison: Comparison = this.original
      ? await compareOriginal(kernels, weight, await readScales(weight), this.original)
      : { findings: [] };
    const weightFindings = [
      ...judgeStatistics(weight, statistics, scales, isExplained(comparison)),
      ...stackFindings,
      ...judgeScaleFormat(this.survey.claim, weight, statistics.scale),
    ];
    const share = (count: number): number => (statistics.elements === 0 ? 0 : count / statistics.elements);
    const { storedGlobal, storedGlobals } = scales;
    const report: WeightReport = {
      ...weightSummary(weight),
      scales: {
        dtype: weight.scale.entry.dtype,
        ...statistics.scale,
        ...(storedGlobal === undefined ? {} : { global: storedGlobal }),
        ...(storedGlobals ? { globals: [...storedGlobals] } : {}),
      },
      codesUsed: statistics.codesUsed,
      codesOfType: CODE_TYPES[weight.type].values.length,
      zeros: share(statistics.zeros),
      saturated: share(statistics.saturated),
      nans: share(statistics.nans),
      amax: statistics.amax,
      rms: statistics.rms,
      ...(comparison.error ? { error: comparison.error } : {}),
    };
    return { report, findings: withoutRepetition(weightFindings, comparison.findings), statistics };
  }
}

/** The weights of the original checkpoint, quantized or not, by name. */
async function readOriginal(checkpoint: CheckpointFiles): Promise<Original> {
  const { weights, plain } = await surveyFiles(checkpoint);
  return { path: checkpoint.path, sources: sourcesOf(weights, plain) };
}

/** Whether the values agree with the original, so that circumstantial findings are not needed. */
function isExplained({ error, findings }: Comparison): boolean {
  return error !== undefined && findings.every(({ name }) => name !== "values-apart");
}

/** The findings about one weight. Leaves out "values-apart" if an error explains the values. */
function withoutRepetition(
  ownFindings: readonly Finding[],
  comparisonFindings: readonly Finding[],
): Finding[] {
  const hasCause = ownFindings.some(({ severity }) => severity === "error");
  const newFindings = comparisonFindings.filter(
    ({ name }) => !(hasCause && name === "values-apart") && ownFindings.every((each) => each.name !== name),
  );
  return [...ownFindings, ...newFindings];
}

function weightSummary(weight: QuantizedWeight) {
  const { name, convention, type, shape, geometry, codes, scale, global, unpacked } = weight;
  const tensors = [...(unpacked?.from ?? [codes, scale]), ...(global ? [global] : [])];
  const bytes = tensors.reduce((sum, { entry }) => sum + fileBytes(entry.dtype, entry.shape), 0);
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

function checkpointSummary(
  { path, shards, tensors, gguf }: CheckpointFiles,
  { claim, weights, lockstepWeights, plain }: Survey,
): Omit<CheckpointReport, "weights" | "findings"> {
  const shapes = [
    ...weights.map(({ shape }) => shape),
    ...lockstepWeights.map(({ recipe }) => recipe.shape),
    ...plain.map(({ entry }) => entry.shape),
  ];
  const elements = shapes.reduce((sum, shape) => sum + elementCount(shape), 0);
  let bytes = 0;
  for (const { entry, shard } of tensors.values())
    bytes += packedAs(shard, entry.name)?.bytes ?? entry.end - entry.begin;
  return {
    path,
    shards: shards.length,
    tensors: gguf?.tensors ?? tensors.size,
    ...(gguf ? { gguf } : {}),
    ...(claim ? { claim: summaryOfClaim(claim) } : {}),
    lockstepWeights: Object.fromEntries(
      lockstepWeights.map(({ name, recipe }) => [name, lockstepReport(recipe)]),
    ),
    unquantized: plain.map(({ entry: { name, dtype, shape }, shard }) => {
      const packed = packedAs(shard, name);
      return { name, dtype, shape, ...(packed ? { layout: packed.layout } : {}) };
    }),
    elements,
    bitsPerWeight: elements === 0 ? 0 : (8 * bytes) / elements,
  };
}
