/** The stages of whole layers of TransformerEngine that scripts/witness/te_layers.py recorded, and the bits of their tensors. */
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import type { Shape } from "../../../../../src/tensor/shape.js";
import { draw } from "../draws.js";
import type { Origin } from "../recorded.js";

/** A recorded tensor. `key` is the first half of the SHA-256 of its bits. */
export interface Reference {
  readonly type: "bf16" | "f32" | "u8";
  readonly shape: Shape;
  readonly key: string;
}

/** A recorded quantized tensor: its copies, and their scales without padding. */
export interface QuantizedReference {
  readonly format: "e4m3" | "e5m2";
  readonly tile?: "128x128" | "1x128";
  readonly shape: readonly [number, number];
  readonly data?: Reference;
  readonly transpose?: Reference;
  readonly scales?: Reference;
  readonly transposeScales?: Reference;
}

export interface QuantizerReference {
  readonly kind: "delayed" | "current" | "block";
  readonly format: "e4m3" | "e5m2";
  readonly rowwise: boolean;
  readonly columnwise: boolean;
  readonly pow2Scales?: boolean;
  readonly tile?: "128x128" | "1x128";
  readonly scale?: Reference;
}

export interface StageOptions {
  readonly eps?: number;
  readonly scale?: number;
  readonly alpha?: number;
  readonly layout?: "TN" | "NN" | "NT";
  readonly useSplitAccumulator?: boolean;
  readonly algorithm?: string;
  readonly quantizer?: QuantizerReference;
}

/** One computation of a layer. */
export interface Stage {
  readonly stage: string;
  readonly inputs: Readonly<Record<string, Reference | QuantizedReference>>;
  readonly options: StageOptions;
  readonly results: Readonly<Record<string, Reference | QuantizedReference>>;
}

interface LayerCase {
  readonly module: string;
  readonly name?: string;
  readonly recipe: "bf16" | "delayed" | "current" | "block";
  readonly normalization: string;
  readonly activation?: string;
  readonly shape: Shape;
  readonly seed: number;
  readonly iteration: number;
  /** The shapes of the parameters. */
  readonly parameters: Readonly<Record<string, Shape>>;
  readonly stages: readonly Stage[];
}

interface Layers {
  readonly origin: Origin;
  readonly layers: readonly LayerCase[];
  /** In base64, by key: bits that are neither drawn nor computed by a replayed stage. */
  readonly bits: Readonly<Record<string, string>>;
}

export const LAYERS_PATH = new URL("../../../../vectors/te-layers.json", import.meta.url);

export function readLayers(path: URL | string = LAYERS_PATH): Layers {
  return JSON.parse(readFileSync(path, "utf8")) as Layers;
}

export function isQuantized(given: Reference | QuantizedReference): given is QuantizedReference {
  return "format" in given;
}

export function keyOf(bytes: Uint8Array): string {
  return createHash("sha256").update(bytes).digest("hex").slice(0, 32);
}

/** The bits of one case: stored bits, drawn bits, and the results of replayed stages. */
export class Bits {
  readonly #known = new Map<string, Uint8Array>();
  readonly #stored: Layers["bits"];
  /** The keys of stored bits that were read. */
  readonly used = new Set<string>();

  constructor({ bits }: Layers, given: LayerCase) {
    this.#stored = bits;
    const { shape, parameters } = given;
    const base = given.seed + 100 * given.iteration;
    const drawn = (kind: "bell" | "small", seed: number, of: Shape): void => {
      const { buffer, byteOffset, byteLength } = draw(kind, "bf16", seed, of);
      this.add(new Uint8Array(buffer, byteOffset, byteLength).slice());
    };
    Object.keys(parameters)
      .sort()
      .forEach((name, i) => {
        drawn(name.includes("layer_norm") ? "bell" : "small", base + 10 + i, parameters[name] as Shape);
      });
    drawn("bell", base + 50, shape);
    const columns = given.module === "LayerNormLinear" ? parameters.weight?.[0] : shape.at(-1);
    drawn("bell", base + 51, [...shape.slice(0, -1), columns ?? 0]);
  }

  add(bytes: Uint8Array): void {
    this.#known.set(keyOf(bytes), bytes);
  }

  /** The bits, or undefined if a replay has to compute them. */
  find(key: string): Uint8Array | undefined {
    const known = this.#known.get(key);
    if (known) return known;
    const stored = this.#stored[key];
    if (stored === undefined) return undefined;
    this.used.add(key);
    return new Uint8Array(Buffer.from(stored, "base64"));
  }

  of({ key, type, shape }: Reference): Uint8Array {
    const bytes = this.find(key);
    if (!bytes) throw new Error(`the bits ${key} of ${type} [${shape}] are neither stored nor computed`);
    return bytes;
  }
}
