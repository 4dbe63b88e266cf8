/** The results of TransformerEngine that scripts/witness/te_vectors.py recorded, and comparisons with them. */
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import type { Tensor } from "../../../../src/index.js";

export interface Origin {
  readonly version: string;
  readonly gpu: string;
}

/** A result: all its bits in base64, or their SHA-256 and the first bits. */
export interface RecordedResult {
  readonly type: "u8" | "bf16" | "f16" | "f32";
  readonly shape: readonly number[];
  readonly sha256?: string;
  readonly first?: string;
  readonly bits?: string;
}

export function readWitness<Case>(file: "quantizations" | "nvfp4" | "functions" | "modules"): {
  readonly origin: Origin;
  readonly cases: readonly Case[];
} {
  const path = new URL(`../../../vectors/te-${file}.json`, import.meta.url);
  const { origin, [file]: cases } = JSON.parse(readFileSync(path, "utf8"));
  return { origin, cases };
}

const CANONICAL = { bf16: 0x7fff, f16: 0x7fff, f32: 0x7fffffff } as const;
/** The bit pattern of infinity. Larger magnitudes are NaN. */
const INFINITIES = { bf16: 0x7f80, f16: 0x7c00, f32: 0x7f800000 } as const;

/** The bytes of a tensor, with all NaNs of a wide type replaced by the canonical one. */
export async function canonicalBytes(x: Tensor): Promise<Uint8Array> {
  const { buffer, byteOffset, byteLength } = await x.data();
  const bytes = new Uint8Array(buffer, byteOffset, byteLength).slice();
  const { dtype } = x;
  if (dtype !== "bf16" && dtype !== "f16" && dtype !== "f32") return bytes;
  const view = dtype === "f32" ? new Uint32Array(bytes.buffer) : new Uint16Array(bytes.buffer);
  const magnitude = CANONICAL[dtype];
  for (let i = 0; i < view.length; i++)
    if (((view[i] as number) & magnitude) > INFINITIES[dtype]) view[i] = magnitude;
  return bytes;
}

/** The recorded bytes, if all were recorded. */
export function recordedBytes({ bits }: RecordedResult): Uint8Array {
  if (bits === undefined) throw new Error("this result was recorded as a hash");
  return new Uint8Array(Buffer.from(bits, "base64"));
}

/** The differences between a result and the recorded one, in units of the last place. */
export interface Distances {
  readonly elements: number;
  readonly differing: number;
  /** The number of elements that differ by more than one unit. */
  readonly further: number;
  readonly most: number;
}

/** The rank of a number among all numbers of its type in ascending order; both zeros have the same rank. */
function rankInType(bits: number, sign: number): number {
  return bits & sign ? -(bits ^ sign) : bits;
}

/** The differences between two results of one type. Throws if only one of two elements is NaN. */
export function computeDistances(bytes: Uint8Array, recorded: RecordedResult): Distances {
  const { type } = recorded;
  if (type === "u8") throw new Error("codes have no distance");
  const recordedData = recordedBytes(recorded);
  const isF32 = type === "f32";
  const view = (source: Uint8Array): Uint16Array | Int32Array =>
    isF32 ? new Int32Array(source.slice().buffer) : new Uint16Array(source.slice().buffer);
  const [actualCodes, recordedCodes] = [view(bytes), view(recordedData)];
  let [differing, further, most] = [0, 0, 0];
  actualCodes.forEach((bits, i) => {
    const recordedCode = recordedCodes[i] as number;
    if (bits === recordedCode) return;
    if (bits === CANONICAL[type] || recordedCode === CANONICAL[type])
      throw new Error(
        `element ${i} is ${bits.toString(16)}, recorded is ${recordedCode.toString(16)}: one of them a NaN`,
      );
    const sign = isF32 ? 1 << 31 : 0x8000;
    const distance = Math.abs(rankInType(bits, sign) - rankInType(recordedCode, sign));
    differing++;
    if (distance > 1) further++;
    most = Math.max(most, distance);
  });
  return { elements: actualCodes.length, differing, further, most };
}

/** Combines several differences into one. */
export function combineDistances(distances: readonly Distances[]): Distances {
  const sum = (field: (each: Distances) => number): number =>
    distances.reduce((total, each) => total + field(each), 0);
  return {
    elements: sum(({ elements }) => elements),
    differing: sum(({ differing }) => differing),
    further: sum(({ further }) => further),
    most: distances.reduce((largest, { most }) => Math.max(largest, most), 0),
  };
}

/** The result in the recorded form, for comparison. */
export function toRecordedForm(bytes: Uint8Array, like: RecordedResult): RecordedResult {
  const { type, shape } = like;
  if (like.bits !== undefined) return { type, shape, bits: Buffer.from(bytes).toString("base64") };
  const sha256 = createHash("sha256").update(bytes).digest("hex");
  return { type, shape, sha256, first: Buffer.from(bytes.subarray(0, 16)).toString("hex") };
}
