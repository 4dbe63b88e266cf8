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
  /** The bits that are neither drawn nor computed by a replayed stage, in base64, by key. */
  readonly bits: Readonly<Record<string, string>>;
}

export const LAYERS_PATH = new URL("../../../../vectors/te-layers.json", import.meta.url);

export function readLayers(path: URL | string = LAYERS_PATH): Layers {
  return JSON.parse(readFileSync(path, "utf8")) as Layers;
}

export function isQuantized(reference: Reference | QuantizedReference): reference is QuantizedReference {
  return "format" in reference;
}

export function hashKey(bytes: Uint8Array): string {
  return createHash("sha256").update(bytes).digest("hex").slice(0, 32);
}

/** The bits of one case: stored bits, drawn bits, and the results of replayed stages. */
export class Bits {
  readonly #computed = new Map<string, Uint8Array>();
  readonly #stored: Layers["bits"];
  /** The keys of stored bits that were read. */
  readonly usedKeys = new Set<string>();

  constructor({ bits }: Layers, layerCase: LayerCase) {
    this.#stored = bits;
    const { shape, parameters } = layerCase;
    const base = layerCase.seed + 100 * layerCase.iteration;
    const addDraw = (kind: "bell" | "small", seed: number, drawnShape: Shape): void => {
      const { buffer, byteOffset, byteLength } = draw(kind, "bf16", seed, drawnShape);
      this.add(new Uint8Array(buffer, byteOffset, byteLength).slice());
    };
    Object.keys(parameters)
      .sort()
      .forEach((name, i) => {
        addDraw(name.includes("layer_norm") ? "bell" : "small", base + 10 + i, parameters[name] as Shape);
      });
    addDraw("bell", base + 50, shape);
    const columns = layerCase.module === "LayerNormLinear" ? parameters.weight?.[0] : shape.at(-1);
    addDraw("bell", base + 51, [...shape.slice(0, -1), columns ?? 0]);
  }

  add(bytes: Uint8Array): void {
    this.#computed.set(hashKey(bytes), bytes);
  }

  /** The bits, or undefined if a replay has to compute them. */
  find(key: string): Uint8Array | undefined {
    const computed = this.#computed.get(key);
    if (computed) return computed;
    const stored = this.#stored[key];
    if (stored === undefined) return undefined;
    this.usedKeys.add(key);
    return new Uint8Array(Buffer.from(stored, "base64"));
  }

  require({ key, type, shape }: Reference): Uint8Array {
    const bytes = this.find(key);
    if (!bytes) throw new Error(`the bits ${key} of ${type} [${shape}] are neither stored nor computed`);
    return bytes;
  }
}
