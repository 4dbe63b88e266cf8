/** Writes GGUF files of version 3. */
import { ArgumentError } from "../../errors.js";
import { Coverage } from "../../io/coverage/coverage.js";
import { fileBytes } from "../../io/dtypes.js";
import { writeAt } from "../../io/files.js";
import type { PutTensor, TensorEntry, TensorPlan } from "../../io/header/header.js";
import { replaceFile } from "../../io/replace/replace.js";
import { MAGIC_WORD } from "./header.js";
import { DEFAULT_ALIGNMENT } from "./metadata.js";
import { type BlockType, blockBytes, codeBytes } from "./types.js";
import { BLOCK_SCALES, packBlocks } from "./views.js";
import { ggufTensors, type WrittenTensor } from "./written-tensors.js";

const VERSION = 3;
/** The contents of a file. */
export interface GgufPlan {
  /** The tensors as `GgufFile` lists them: codes and scales of block tensors are separate. */
  readonly tensors: readonly TensorPlan[];
  /** The entries of the metadata: key, type and value of each, as bytes. */
  readonly metadata: readonly Uint8Array[];
}

const UTF8 = new TextEncoder();

/** Encodes integers and strings, little endian. */
export const little = {
  u16: (value: number) => integers(2, value),
  u32: (value: number) => integers(4, value),
  u64: (value: number) => integers(8, value),
  /** Encodes the length of a string and then the string. */
  text: (value: string) => Buffer.concat([integers(8, UTF8.encode(value).length), UTF8.encode(value)]),
} as const;

function integers(size: number, value: number): Uint8Array {
  const bytes = new Uint8Array(8);
  new DataView(bytes.buffer).setBigUint64(0, BigInt(value), true);
  return bytes.subarray(0, size);
}

const padded = (bytes: number): number => Math.ceil(bytes / DEFAULT_ALIGNMENT) * DEFAULT_ALIGNMENT;

/** The header of a file, and the position of each tensor's data. */
function headerOf(
  tensors: readonly WrittenTensor[],
  metadata: readonly Uint8Array[],
): { readonly header: Uint8Array; readonly dataOffsets: ReadonlyMap<string, number> } {
  const { text, u32, u64 } = little;
  let offset = 0;
  const descriptions = tensors.map(({ name, type, shape, bytes }) => {
    const tensorOffset = offset;
    offset += padded(bytes);
    return {
      at: tensorOffset,
      name,
      pieces: [text(name), u32(shape.length), ...shape.toReversed().map(u64), u32(type), u64(tensorOffset)],
    };
  });
  const head = [u32(MAGIC_WORD), u32(VERSION), u64(tensors.length), u64(metadata.length)];
  const bytes = Buffer.concat([...head, ...metadata, ...descriptions.flatMap(({ pieces }) => pieces)]);
  const header = new Uint8Array(padded(bytes.length));
  header.set(bytes);
  return { header, dataOffsets: new Map(descriptions.map(({ name, at }) => [name, header.length + at])) };
}

/**
 * Writes a GGUF file. `body` writes every byte of every tensor of the plan, each tensor sequentially. A block is written when
 * both its codes and its scales have arrived; until then its bytes are held in memory. The file appears at `path` when it is
 * complete. Throws `FileError` for content that GGUF cannot hold and for errors of the operating system.
 */
export async function writeGguf(
  path: string,
  plan: GgufPlan,
  body: (put: PutTensor) => Promise<void>,
): Promise<void> {
  const tensors = ggufTensors(path, plan.tensors);
  const { header, dataOffsets } = headerOf(tensors, plan.metadata);
  const entries = new Map(
    plan.tensors.map((tensor): [string, TensorEntry] => [tensor.name, entryOf(tensor)]),
  );
  await replaceFile(path, async (handle) => {
    const coverage = new Coverage(path, entries);
    const write = (bytes: Uint8Array, offset: number): Promise<void> => writeAt(path, handle, bytes, offset);
    await write(header, 0);
    const blockParts = new Map<string, { readonly packer: Packer; readonly part: "codes" | "scales" }>();
    for (const { name, blocks, bytes } of tensors) {
      const begin = dataOffsets.get(name) ?? 0;
      await write(new Uint8Array(padded(bytes) - bytes), begin + bytes);
      if (!blocks) continue;
      const packer = new Packer(blocks, begin, write);
      blockParts.set(name, { packer, part: "codes" }).set(name + BLOCK_SCALES, { packer, part: "scales" });
    }
    await body(async (name, bytes, offset = 0) => {
      coverage.add(name, bytes, offset);
      const blockPart = blockParts.get(name);
      if (blockPart) await blockPart.packer.put(blockPart.part, bytes, offset);
      else await write(bytes, (dataOffsets.get(name) ?? 0) + offset);
    });
    coverage.requireComplete();
  });
}

function entryOf(plan: TensorPlan): TensorEntry {
  return { ...plan, begin: 0, end: fileBytes(plan.dtype, plan.shape) };
}

/** Packs codes and scales of one tensor into blocks as they arrive. */
class Packer {
  readonly #waiting = { codes: new Uint8Array(), scales: new Uint8Array() };
  readonly #at = { codes: 0, scales: 0 };
  #blocks = 0;

  constructor(
    private readonly type: BlockType,
    private readonly begin: number,
    private readonly write: (bytes: Uint8Array, offset: number) => Promise<void>,
  ) {}

  async put(part: "codes" | "scales", bytes: Uint8Array, offset: number): Promise<void> {
    if (offset !== this.#at[part])
      throw new ArgumentError(
        `put: byte ${offset} of ${part} comes after byte ${this.#at[part]}; write them in order`,
      );
    this.#at[part] += bytes.length;
    const before = this.#waiting[part];
    this.#waiting[part] = before.length === 0 ? bytes.slice() : Buffer.concat([before, bytes]);
    const { codes, scales } = this.#waiting;
    const [codeStep, scaleStep] = [codeBytes(this.type), this.type.scales];
    const count = Math.floor(Math.min(codes.length / codeStep, scales.length / scaleStep));
    if (count === 0) return;
    const packed = packBlocks(
      this.type,
      codes.subarray(0, count * codeStep),
      scales.subarray(0, count * scaleStep),
    );
    this.#waiting.codes = codes.subarray(count * codeStep);
    this.#waiting.scales = scales.subarray(count * scaleStep);
    await this.write(packed, this.begin + this.#blocks * blockBytes(this.type));
    this.#blocks += count;
  }
}
