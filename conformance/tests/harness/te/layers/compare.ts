/** Comparisons of replayed stages with recorded ones. */
import { QuantizedTensor, type Tensor } from "../../../../../src/index.js";
import { canonicalBytes } from "../recorded.js";
import type { ReplayedResults } from "./replay.js";
import { isQuantized, type QuantizedReference, type Reference, type Stage } from "./witness.js";

/** A recorded tensor and this library's. */
export interface ResultPair {
  /** The name of the result. For a quantized result, the part follows. */
  readonly name: string;
  readonly recorded: Reference;
  readonly ours: Uint8Array;
}

/** Pairs of the recorded results of a stage and this library's. Throws if a result is missing. */
export async function comparePairs(stage: Stage, replayed: ReplayedResults): Promise<readonly ResultPair[]> {
  const pairs: ResultPair[] = [];
  for (const [name, recorded] of Object.entries(stage.results)) {
    const variants = Object.keys(replayed).filter((key) => key === name || key.startsWith(`${name} by `));
    if (variants.length === 0) throw new Error(`${stage.stage}: no ${name}`);
    for (const variant of variants) {
      const actual = replayed[variant];
      if (!actual) throw new Error(`${stage.stage}: no ${variant}`);
      if (!isQuantized(recorded)) {
        if (actual instanceof QuantizedTensor) throw new Error(`${stage.stage}: ${variant} is quantized`);
        pairs.push({ name: variant, recorded, ours: await canonicalBytes(actual) });
      } else if (actual instanceof QuantizedTensor)
        pairs.push(...(await quantizedPairs(variant, recorded, actual)));
      else throw new Error(`${stage.stage}: ${variant} is not quantized`);
    }
  }
  return pairs;
}

async function quantizedPairs(
  name: string,
  recorded: QuantizedReference,
  { rowwise, columnwise }: QuantizedTensor,
): Promise<readonly ResultPair[]> {
  const parts: readonly (readonly [string, Reference | undefined, Tensor | undefined])[] = [
    ["codes", recorded.data, rowwise?.data],
    ["transposed codes", recorded.transpose, columnwise?.data],
    ["scales", recorded.scales, rowwise?.scaleInv ?? columnwise?.scaleInv],
    ["transposed scales", recorded.transposeScales, columnwise?.scaleInv],
  ];
  const pairs: ResultPair[] = [];
  for (const [part, reference, tensor] of parts) {
    if (!reference) continue;
    if (!tensor) throw new Error(`${name}: no ${part}`);
    const bytes = await canonicalBytes(tensor);
    const ours = part.endsWith("scales") ? cropScales(bytes, tensor, reference) : bytes;
    pairs.push({ name: `${name} ${part}`, recorded: reference, ours });
  }
  return pairs;
}

/** The scales without their padding, which has no recorded values. */
function cropScales(bytes: Uint8Array, { shape }: Tensor, recorded: Reference): Uint8Array {
  const [rows = 0, stride] = shape;
  const [, columns] = recorded.shape;
  if (stride === undefined || columns === undefined || stride === columns) return bytes;
  const croppedScales = new Uint8Array(4 * rows * columns);
  for (let i = 0; i < rows; i++)
    croppedScales.set(bytes.subarray(4 * i * stride, 4 * (i * stride + columns)), 4 * i * columns);
  return croppedScales;
}

/** Stages all of whose results must be equal in every bit, and single results of other stages. */
const EXACT_RESULTS = [
  ...["quantizer", "transposition", "heads of qkv", "gradient of qkv", "residual", "residual gradient"],
  ...["bias and residual", "bias gradient", "softmax", "attention scores", "attention context"],
  ...["attention gradient: dP", "attention gradient: dv", "attention gradient: dq", "attention gradient: dk"],
  ...["gemm: out", "RoPE: out", "RoPE gradient: out", "layerNorm: mean"],
];

/** Whether the definition of a result leaves no choice, so that it has to be equal in every bit. */
export function mustBeExact(stage: string, result: string): boolean {
  return EXACT_RESULTS.includes(stage) || EXACT_RESULTS.includes(`${stage}: ${result}`);
}
