/**
 * The record of a checkpoint in JSON: its version, the quantization of parameters, counts, the random state, and the
 * caller's data.
 */
import { createHash } from "node:crypto";
import { ArgumentError, FileError } from "../errors.js";
import { isU64 } from "../options.js";
import type { QuantizedTensor } from "../tensor/quantized.js";
import { MODULE } from "./checkpoint-tensors.js";
import { isObject, type JsonObject, type Metadata, type TensorPlan } from "./header/header.js";
import { parseJsonObject } from "./json/json-object.js";
import { shownJson } from "./json/json-shown.js";
import { jsonText } from "./json/json-write.js";
import { recipesOf } from "./quantized/quantized-file.js";
import { KEY_PREFIX, RECORD_KEY } from "./quantized/recipe.js";
import { recordedSpec } from "./quantized/recorded-spec.js";
import type { TensorSource } from "./source.js";

/**
 * The version of the format. A change that older readers would misread increases it. Version 1 stored quantized
 * parameters differently.
 */
export const VERSION = 2;
const OLDEST_VERSION = 1;

export interface CheckpointRecord {
  readonly version: number;
  /**
   * The quantization of each parameter by name. In version 1 it is part of the record; since version 2 it is in the metadata of
   * each tensor.
   */
  readonly quantized: JsonObject;
  /** The number of updates of each parameter; absent without an optimizer. */
  readonly steps: JsonObject | undefined;
  readonly random: { readonly seed: bigint; readonly offset: bigint };
  readonly extra: unknown;
}

/** The properties of a quantized parameter, other than its copies, that must be equal when it is loaded. */
export function quantizedRecord({ spec, shape, dtype, scaleLayout }: QuantizedTensor): JsonObject {
  return { ...recordedSpec(spec), shape, dtype, scaleLayout };
}

/** The quantized parameters, read from the metadata of their tensors. */
function quantizedByRecipes(file: TensorSource): JsonObject {
  const recipes = [...recipesOf(file)].flatMap(([name, { spec, shape, dtype, scales: scaleLayout }]) =>
    name.startsWith(MODULE)
      ? [[name.slice(MODULE.length), { ...recordedSpec(spec), shape, dtype, scaleLayout }] as const]
      : [],
  );
  return Object.fromEntries(recipes);
}

/** A record with the digest of everything in the file. */
export interface StoredRecord extends CheckpointRecord {
  /** The JSON of the record without the digest. */
  readonly text: string;
  readonly sha256: string;
}

/**
 * The SHA-256 of a record's JSON, of the library's other metadata in order of keys, and of the tensors in order of
 * names.
 */
export class CheckpointDigest {
  readonly #hash = createHash("sha256");

  constructor(text: string, metadata: Metadata) {
    this.#hash.update(text);
    const keys = Object.keys(metadata).filter((key) => key.startsWith(KEY_PREFIX) && key !== RECORD_KEY);
    for (const key of keys.sort()) this.#hash.update(JSON.stringify([key, metadata[key]]));
  }

  add({ name, dtype, shape }: TensorPlan, bytes: Uint8Array): void {
    this.#hash.update(JSON.stringify([name, dtype, shape])).update(bytes);
  }

  end(): string {
    return this.#hash.digest("hex");
  }
}

/** The JSON of a record. Throws `ArgumentError` for an `extra` that JSON would change. */
export function recordText({ version, quantized, steps, random, extra }: CheckpointRecord): string {
  const numbers = { seed: String(random.seed), offset: String(random.offset) };
  const recordQuantized = version === OLDEST_VERSION ? quantized : undefined;
  const fields = { version, quantized: recordQuantized, steps, random: numbers, extra };
  const members = Object.entries(fields).filter(([, value]) => value !== undefined);
  return `{${members.map(([name, value]) => `"${name}":${jsonText(name, value)}`).join(",")}}`;
}

/** The JSON of a record with the digest. */
export function withDigest(text: string, sha256: string): string {
  return `${text.slice(0, -1)},"sha256":"${sha256}"}`;
}

/** The record of a file. Throws `FileError` if the file is not a checkpoint, or has another version. */
export function readRecord(file: TensorSource): StoredRecord {
  const { path, metadata } = file;
  const fail = (why: string): FileError => new FileError(`${path}: ${why}`);
  const stored = Object.hasOwn(metadata, RECORD_KEY) ? metadata[RECORD_KEY] : undefined;
  if (stored === undefined)
    throw fail(
      `is not a checkpoint: its metadata have no "${RECORD_KEY}"; give a file that saveCheckpoint wrote`,
    );
  const record = parseJsonObject(stored);
  if (!record) throw fail(`its metadata's "${RECORD_KEY}" is not a JSON object; the file is damaged`);
  const { version } = record;
  if (version !== OLDEST_VERSION && version !== VERSION) {
    throw fail(
      `is a checkpoint of version ${shownJson(version)}; this release reads versions ${OLDEST_VERSION} and ${VERSION}; load it with the release that saved it`,
    );
  }
  const { steps, random, extra, sha256 } = record;
  const damaged = (part: string): FileError => fail(`its ${part}; the file is damaged`);
  const quantized = version === OLDEST_VERSION ? record.quantized : quantizedByRecipes(file);
  if (!isObject(quantized)) throw damaged("list of quantized parameters is missing");
  if (steps !== undefined && !isObject(steps)) throw damaged("step counts are not an object");
  if (!isObject(random)) throw damaged("random state is missing");
  const { seed, offset } = random;
  if (!isWordText(seed) || !isWordText(offset))
    throw damaged("seed and offset are not decimal numbers of 64 bits");
  if (typeof sha256 !== "string") throw damaged("digest is missing");
  const read = { version, quantized, steps, random: { seed: BigInt(seed), offset: BigInt(offset) }, extra };
  try {
    return { ...read, text: recordText(read), sha256 };
  } catch (error) {
    if (!(error instanceof ArgumentError)) throw error;
    throw damaged("record holds what no checkpoint can");
  }
}

/** Whether a value is an unsigned 64-bit integer in decimal digits, as seeds and offsets are stored. */
export function isWordText(value: unknown): value is string {
  return typeof value === "string" && /^\d{1,20}$/.test(value) && isU64(BigInt(value));
}
