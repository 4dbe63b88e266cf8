/** Writes safetensors files. */
import type { FileHandle } from "node:fs/promises";
import { ArgumentError, FileError } from "../errors.js";
import {
  anyListOf,
  anything,
  callable,
  describe,
  integer,
  needed,
  oneOf,
  optionsOf,
  text,
} from "../options.js";
import { kindOf } from "../tensor/data.js";
import { FILE_DTYPES } from "./dtypes.js";
import { requirePath, writeAt } from "./files.js";
import type { Metadata, TensorEntry, TensorPlan } from "./header/header.js";
import { encodeHeader, planEntries } from "./header/header-write.js";
import { requireMetadata } from "./metadata.js";
import { replaceFile } from "./replace/replace.js";
import { Spans } from "./spans.js";

/** The contents of a file. */
export interface FilePlan {
  /** The names, types and shapes of tensors. Names are unique. The offsets follow from the types. */
  readonly tensors: readonly TensorPlan[];
  /** The metadata. Default: none. */
  readonly metadata?: Metadata | undefined;
}

const checkPlan = optionsOf<FilePlan>({ tensors: needed(anyListOf(checkedTensor)), metadata: anything });
const checkTensor = optionsOf<TensorPlan>({
  name: needed(text),
  dtype: needed(oneOf(Object.keys(FILE_DTYPES))),
  shape: needed(anyListOf(integer(0))),
});

function checkedTensor(user: string, name: string, value: unknown): void {
  const { name: own, dtype, shape } = Object(value) as TensorPlan;
  checkTensor(
    user,
    value === null || typeof value !== "object" ? (value as TensorPlan) : { name: own, dtype, shape },
    name,
  );
}

/** Writes `bytes` at offset `at` of a planned tensor. Calls may come in any order, but must write each byte exactly once. */
export type PutTensor = (name: string, bytes: Uint8Array, at?: number) => Promise<void>;

/**
 * Writes a safetensors file; `body` writes every byte of every planned tensor. The file appears at `path` after all
 * bytes are on the disk. It does not appear if `body` throws, omits bytes or writes some twice. Links are followed, and
 * a replaced file keeps its permissions. Throws `ArgumentError` for an invalid plan, `FileError` for a file that
 * readers would refuse and for errors of the operating system.
 */
export async function writeSafetensors(
  path: string,
  plan: FilePlan,
  body: (put: PutTensor) => Promise<void>,
): Promise<void> {
  requirePath("writeSafetensors", path);
  const { tensors: plans, metadata = {} } = checkPlan("writeSafetensors", plan);
  requireMetadata("writeSafetensors", metadata);
  callable("writeSafetensors", "body", body);
  const tensors = planEntries(path, plans);
  const header = encodeHeader(path, tensors.values(), metadata);
  await replaceFile(path, async (handle) => {
    const writer = new Writer(path, handle, tensors, header.length);
    await writeAt(path, handle, header, 0);
    await body((name, bytes, at = 0) => writer.put(name, bytes, at));
    writer.requireComplete();
  });
}

class Writer {
  readonly #given = new Map<string, Spans>();

  constructor(
    private readonly path: string,
    private readonly handle: FileHandle,
    private readonly tensors: ReadonlyMap<string, TensorEntry>,
    private readonly dataStart: number,
  ) {}

  async put(name: string, bytes: Uint8Array, at: number): Promise<void> {
    const entry = this.tensors.get(name);
    if (kindOf(bytes) !== "Uint8Array" || !Number.isSafeInteger(at) || at < 0)
      throw new ArgumentError(
        `writeSafetensors: put(${JSON.stringify(name)}) was given ${describe(bytes)} and ${describe(at)}; a Uint8Array, and from which byte of the tensor on, are needed`,
      );
    if (!entry) throw new FileError(`${this.path}: tensor "${name}" was not planned`);
    const size = entry.end - entry.begin;
    if (at + bytes.length > size)
      throw new FileError(`${this.path}: tensor "${name}": more than its ${size} bytes were given`);
    const given = this.#given.get(name) ?? new Spans();
    this.#given.set(name, given);
    if (!given.add(at, at + bytes.length))
      throw new FileError(
        `${this.path}: tensor "${name}": some of bytes [${at}, ${at + bytes.length}) were given before; put each byte once`,
      );
    await writeAt(this.path, this.handle, bytes, this.dataStart + entry.begin + at);
  }

  requireComplete(): void {
    for (const { name, begin, end } of this.tensors.values()) {
      const missing = end - begin - (this.#given.get(name)?.size ?? 0);
      if (missing > 0) throw new FileError(`${this.path}: tensor "${name}": ${missing} bytes were not given`);
    }
  }
}
