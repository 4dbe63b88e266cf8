/** What a checkpoint says in JSON: its version, how parameters are quantized, counts, the random state, and the caller's. */
import { createHash } from "node:crypto";
import { ArgumentError, FileError } from "../errors.js";
import type { QuantizedTensor } from "../tensor/quantized.js";
import { isObject, type JsonObject, type TensorPlan } from "./header.js";
import { repeatedKey } from "./json-keys.js";
import type { TensorSource } from "./source.js";

/** The key of a file's metadata that has it. */
export const RECORD_KEY = "lockstep.checkpoint";

/** Raised by whatever makes older readers wrong. */
const VERSION = 1;

export interface CheckpointRecord {
  /** By parameter. */
  readonly quantized: JsonObject;
  /** Updates each parameter has had; absent where there was no optimizer. */
  readonly steps: JsonObject | undefined;
  readonly random: { readonly seed: bigint; readonly offset: bigint };
  readonly extra: unknown;
}

/** What of a quantized parameter, its copies aside, must be the same on saving and on loading. */
export function quantizedRecord({ spec, shape, dtype, scaleLayout }: QuantizedTensor): JsonObject {
  return { ...spec, shape, dtype, scaleLayout };
}

/** A record with the digest of all there is in the file. */
export interface StoredRecord extends CheckpointRecord {
  readonly sha256: string;
}

/** The SHA-256 of a record and of the tensors beside it, given by name in ascending order. */
export class CheckpointDigest {
  readonly #hash = createHash("sha256");

  constructor(record: CheckpointRecord) {
    this.#hash.update(JSON.stringify(jsonOf(record)));
  }

  add({ name, dtype, shape }: TensorPlan, bytes: Uint8Array): void {
    this.#hash.update(JSON.stringify([name, dtype, shape])).update(bytes);
  }

  end(): string {
    return this.#hash.digest("hex");
  }
}

function jsonOf({ quantized, steps, random, extra }: CheckpointRecord): JsonObject {
  const numbers = { seed: String(random.seed), offset: String(random.offset) };
  return { version: VERSION, quantized, steps, random: numbers, extra };
}

/** The record as text. */
export function formatRecord(record: CheckpointRecord, sha256: string): string {
  return JSON.stringify({ ...jsonOf(record), sha256 });
}

/** Throws `ArgumentError` for a value that JSON would change. */
export function requireJson(name: string, value: unknown): void {
  if (value === null || typeof value === "string" || typeof value === "boolean") return;
  if (typeof value === "number" && Number.isFinite(value)) return;
  if (Array.isArray(value)) {
    for (const [i, each] of value.entries()) requireJson(`${name}[${i}]`, each);
  } else if (isObject(value) && isPlain(value)) {
    for (const [key, each] of Object.entries(value)) requireJson(`${name}.${key}`, each);
  } else {
    throw new ArgumentError(
      `checkpoint: ${name} is ${typeof value} ${String(value)}, which JSON does not hold; give null, booleans, texts, finite numbers, lists and plain objects`,
    );
  }
}

function isPlain(value: object): boolean {
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === null || prototype === Object.prototype;
}

/** The record of a file. Throws `FileError` for a file that is no checkpoint, or of another version. */
export function readRecord({ path, metadata }: TensorSource): StoredRecord {
  const fail = (why: string): FileError => new FileError(`${path}: ${why}`);
  const text = metadata[RECORD_KEY];
  if (text === undefined)
    throw fail(
      `is no checkpoint: its metadata have no "${RECORD_KEY}"; give a file that saveCheckpoint wrote`,
    );
  const record = parse(text);
  if (!record) throw fail(`its metadata's "${RECORD_KEY}" is not a JSON object; the file is damaged`);
  if (record.version !== VERSION) {
    throw fail(
      `is a checkpoint of version ${JSON.stringify(record.version)}; this release reads version ${VERSION}; load it with the release that saved it`,
    );
  }
  const { quantized, steps, random, extra, sha256 } = record;
  const damaged = (what: string): FileError => fail(`its ${what}; the file is damaged`);
  if (!isObject(quantized)) throw damaged("list of quantized parameters is missing");
  if (steps !== undefined && !isObject(steps)) throw damaged("step counts are not an object");
  if (!isObject(random)) throw damaged("random state is missing");
  const { seed, offset } = random;
  if (!isInteger(seed) || !isInteger(offset)) throw damaged("seed and offset are not decimal numbers");
  if (typeof sha256 !== "string") throw damaged("digest is missing");
  return { quantized, steps, random: { seed: BigInt(seed), offset: BigInt(offset) }, extra, sha256 };
}

function isInteger(value: unknown): value is string {
  return typeof value === "string" && /^-?\d+$/.test(value);
}

function parse(text: string): JsonObject | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return isObject(value) && repeatedKey(text) === undefined ? value : undefined;
  } catch {
    return undefined;
  }
}
