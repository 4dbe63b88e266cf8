/** The index of a sharded checkpoint: for each part of each tensor, the file that contains it. */
import { join } from "node:path";
import { ArgumentError, FileError } from "../../errors.js";
import {
  anyListOf,
  anything,
  domain,
  integer,
  listOf,
  needed,
  oneOf,
  optionsOf,
  text,
} from "../../options.js";
import {
  requirePart,
  sameOrApart,
  shapeOfPart,
  sizeOfPart,
  type TensorPart,
  wholePart,
} from "../../tensor/part.js";
import { type Shape, sameShape } from "../../tensor/shape.js";
import { isWordText } from "../checkpoint-record.js";
import { FILE_DTYPES, type FileDType } from "../dtypes.js";
import { openFile, readAt, writeAt } from "../files.js";
import { isObject } from "../header/header.js";
import { JsonError, parseJson } from "../json/json-read.js";
import { jsonText } from "../json/json-write.js";
import { MAX_HEADER_BYTES } from "../limits.js";
import { replaceFile } from "../replace/replace.js";
import { isTemporary } from "../replace/temporaries.js";
import { digestOf } from "./local.js";

/** The name of the index in the folder of a checkpoint. */
const INDEX_NAME = "checkpoint.index.json";
/** The prefix in the temporary names of indexes. */
const INDEX_KIND = "index-";
const VERSION = 1;
/** The name of a folder with the files of a save. */
const GENERATION = /^generation-[0-9a-f]{24}$/;
/** The end of an index, into which the digest of everything before it is inserted. */
const DIGEST_END = `,\n"sha256":""}\n`;

/** One version of a part's bytes, and the ranks that had these bytes. */
export interface PartCopy {
  /** The rank whose file contains the bytes. */
  readonly file: number;
  /** The ranks that had these bytes. */
  readonly ranks: readonly number[];
  readonly sha256: string;
}

/** A part of a tensor. */
export interface StoredPart {
  readonly ranges: TensorPart["ranges"];
  /** The shape of the part in the file. */
  readonly stored: Shape;
  /** The quantization of the part as JSON, if it is codes or scales. */
  readonly recipe?: string | undefined;
  /** A single copy, unless ranks had different bytes of the same part. */
  readonly copies: readonly PartCopy[];
}

/** A tensor, as its parts. */
export interface StoredTensor {
  readonly dtype: FileDType;
  /** The shape of the whole tensor. For codes and scales it is the shape of the quantized tensor. */
  readonly shape: Shape;
  readonly parts: readonly StoredPart[];
}

/** The contents of an index. The bytes of the tensors are in other files. */
export interface ShardedIndex {
  readonly version: number;
  /** The name of the folder that contains the files of this save. */
  readonly generation: string;
  /** The number of ranks that saved the checkpoint. */
  readonly ranks: number;
  readonly tensors: Readonly<Record<string, StoredTensor>>;
  /** The number of updates of each parameter; absent without an optimizer. */
  readonly steps?: Readonly<Record<string, number>> | undefined;
  /** The random state of each rank, as seed and offset. */
  readonly random: readonly { readonly seed: string; readonly offset: string }[];
  readonly extra?: unknown;
}

const matching = (pattern: RegExp, requirement: string) =>
  domain((value) => typeof value === "string" && pattern.test(value), requirement);
const hash = matching(/^[0-9a-f]{64}$/, "a SHA-256");
const word = domain(isWordText, "an integer of 64 bits");
const record = domain(isObject, "an object");
const rank = integer(0);

const checkCopy = optionsOf<PartCopy>({
  file: needed(rank),
  ranks: needed(listOf(rank)),
  sha256: needed(hash),
});
const checkStoredPart = optionsOf<StoredPart>({
  ranges: needed(anything),
  stored: needed(anyListOf(integer(0))),
  recipe: text,
  copies: needed(listOf((caller, name, value) => checkCopy(caller, value as PartCopy, name))),
});
const checkTensor = optionsOf<StoredTensor>({
  dtype: needed(oneOf(Object.keys(FILE_DTYPES))),
  shape: needed(anyListOf(integer(0))),
  parts: needed(anyListOf((caller, name, value) => checkStoredPart(caller, value as StoredPart, name))),
});
const checkRandom = optionsOf<ShardedIndex["random"][0]>({ seed: needed(word), offset: needed(word) });
const checkIndex = optionsOf<ShardedIndex>({
  version: needed(oneOf([VERSION])),
  generation: needed(matching(GENERATION, "the name of a generation")),
  ranks: needed(integer(1)),
  tensors: needed(record),
  steps: record,
  random: needed(
    listOf((caller, name, value) => checkRandom(caller, value as ShardedIndex["random"][0], name)),
  ),
  extra: anything,
});

/** Throws `ArgumentError` unless the parts of a tensor cover all of it without overlap. */
export function requireWholeTensor(caller: string, { shape, parts }: StoredTensor): void {
  const all = parts.map(({ ranges }) => requirePart(caller, "a part", { shape, ranges }));
  for (const [i, a] of all.entries())
    for (const b of all.slice(i + 1))
      if (sameOrApart(caller, a, b)) throw new ArgumentError(`${caller}: a part occurs twice`);
  const size = all.reduce((sum, part) => sum + sizeOfPart(part), 0);
  const fullSize = sizeOfPart(wholePart(shape));
  if (size !== fullSize)
    throw new ArgumentError(
      `${caller}: the parts of all ranks have ${size} elements; [${shape}] has ${fullSize}`,
    );
}

/** Returns the path of the folder that contains the files of a save. */
export const generationFolder = (folder: string, { generation }: Pick<ShardedIndex, "generation">): string =>
  join(folder, generation);

/** Returns the path of the file of one rank. */
export function shardPath(
  folder: string,
  index: Pick<ShardedIndex, "generation" | "ranks">,
  rank: number,
): string {
  const [rankDigits, rankCount] = [rank, index.ranks].map((each) => String(each).padStart(5, "0"));
  return join(generationFolder(folder, index), `rank-${rankDigits}-of-${rankCount}.safetensors`);
}

/** Returns the JSON of an index. Throws `ArgumentError` for an `extra` that JSON would change. */
export function indexText(index: Omit<ShardedIndex, "version">): string {
  const fields = Object.entries({ version: VERSION, ...index }).filter(([, value]) => value !== undefined);
  const body = `{${fields.map(([name, value]) => `"${name}":${jsonText(name, value)}`).join(",\n")}`;
  return `${body},\n"sha256":"${digestOf(new TextEncoder().encode(body))}"}\n`;
}

/** Writes an index, replacing the existing one. */
export async function writeIndex(folder: string, text: string): Promise<void> {
  const path = join(folder, INDEX_NAME);
  const bytes = new TextEncoder().encode(text);
  await replaceFile(path, (handle) => writeAt(path, handle, bytes, 0), INDEX_KIND);
}

/**
 * Whether only saves of sharded checkpoints use this name: for the folder with the files of a save, or for an unfinished index.
 */
export const isSaveName = (name: string): boolean => GENERATION.test(name) || isTemporary(name, INDEX_KIND);

/** Reads an index and its digest. Throws `FileError` if there is none, or if it is damaged or of another version. */
export async function readIndex(
  folder: string,
): Promise<{ readonly index: ShardedIndex; readonly sha256: string }> {
  const path = join(folder, INDEX_NAME);
  const { handle, size } = await openFile(path);
  let bytes: Uint8Array;
  try {
    if (size > MAX_HEADER_BYTES)
      throw new FileError(`${path}: has ${size} bytes; ${MAX_HEADER_BYTES} are the most`);
    bytes = await readAt(path, handle, 0, size);
  } finally {
    await handle.close();
  }
  const text = new TextDecoder().decode(bytes);
  const body = text.slice(0, -DIGEST_END.length - 64);
  const [, sha256] = /,\n"sha256":"([0-9a-f]{64})"\}\n$/.exec(text) ?? [];
  if (sha256 === undefined || digestOf(new TextEncoder().encode(body)) !== sha256)
    throw new FileError(`${path}: its digest does not match its contents; the file is damaged or was edited`);
  try {
    return { index: parsedIndex(path, `${body}}`), sha256 };
  } catch (error) {
    if (!(error instanceof ArgumentError || error instanceof JsonError)) throw error;
    throw new FileError(`${path}: is not an index of this release: ${error.message}`);
  }
}

function parsedIndex(path: string, text: string): ShardedIndex {
  const index = checkIndex(path, parseJson(text) as ShardedIndex);
  if (index.random.length !== index.ranks)
    throw new ArgumentError(
      `${path}: has random states of ${index.random.length} ranks, and ${index.ranks} ranks`,
    );
  for (const [name, value] of Object.entries(index.tensors)) {
    const caller = `tensor "${name}"`;
    const ownValue = checkTensor(caller, value);
    requireWholeTensor(caller, ownValue);
    for (const { ranges, stored, recipe } of ownValue.parts)
      if (recipe === undefined && !sameShape(stored, shapeOfPart({ shape: ownValue.shape, ranges })))
        throw new ArgumentError(
          `${caller}: a part is stored as [${stored}], which is not the shape of its ranges`,
        );
    for (const { file } of ownValue.parts.flatMap(({ copies }) => copies))
      if (file >= index.ranks)
        throw new ArgumentError(`${caller}: lies in the file of rank ${file}; there are ${index.ranks}`);
  }
  for (const [name, count] of Object.entries(index.steps ?? {}))
    integer(0)(path, `steps of "${name}"`, count);
  return index;
}
