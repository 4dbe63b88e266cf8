/** Reads parts of tensors from the files of a sharded checkpoint. */
import { FileError } from "../../errors.js";
import { type Overlap, overlapsOf, sizeOfPart, type TensorPart, wholePart } from "../../tensor/part.js";
import { type Shape, sameShape } from "../../tensor/shape.js";
import { SafetensorsFile } from "../safetensors.js";
import { someNames } from "../source.js";
import {
  type PartCopy,
  type ShardedIndex,
  type StoredPart,
  type StoredTensor,
  shardPath,
} from "./index-file.js";
import { digestOf, type LocalTensor } from "./local.js";

/** The rank that reads, and the ranks of its group. */
export interface Reader {
  readonly rank: number;
  readonly size: number;
}

/** The files of a sharded checkpoint. A file is opened at its first use. Call `close` at the end. */
export class ShardFiles {
  readonly #files = new Map<number, Promise<SafetensorsFile>>();

  constructor(
    private readonly folder: string,
    private readonly index: ShardedIndex,
    private readonly reader: Reader,
  ) {}

  /**
   * Returns the bytes of a rank's tensor, assembled from stored parts, or undefined for codes and scales of a part that no rank
   * had. Throws `FileError` if the parts do not cover the tensor.
   */
  async part({ name, dtype, shape, part, recipe }: LocalTensor): Promise<Uint8Array | undefined> {
    const stored = this.#entry(name);
    if (stored.dtype !== dtype || !sameShape(stored.shape, part.shape))
      throw this.fail(
        name,
        `is ${stored.dtype} [${stored.shape}] as a whole and ${dtype} [${part.shape}] is needed; make the module and the optimizer as they were`,
      );
    if (sizeOfPart(part) === 0) {
      for (const each of stored.parts) this.#requireRecipe(name, each.recipe, recipe);
      return recipe === undefined ? new Uint8Array() : undefined;
    }
    const key = JSON.stringify(part.ranges);
    const same = stored.parts.find(({ ranges }) => JSON.stringify(ranges) === key);
    if (same) {
      this.#requireRecipe(name, same.recipe, recipe);
      if (!sameShape(same.stored, shape))
        throw this.fail(name, `is stored as [${same.stored}] and [${shape}] is needed`);
      return this.#read(name, stored, same);
    }
    for (const each of stored.parts) this.#requireRecipe(name, each.recipe, recipe);
    return recipe === undefined ? this.#assembled(name, stored, part) : undefined;
  }

  /** The ranges of the stored parts of a tensor. */
  rangesOf(name: string): readonly StoredPart["ranges"][] {
    return this.#entry(name).parts.map(({ ranges }) => ranges);
  }

  /** Returns the bytes of a stored part, by its index in `rangesOf`. `shape` is its shape in the file. */
  async stored(name: string, number: number, shape: Shape): Promise<Uint8Array> {
    const stored = this.#entry(name);
    const part = stored.parts[number];
    if (!part || !sameShape(part.stored, shape))
      throw this.fail(name, `is stored as [${part?.stored}] and [${shape}] is needed`);
    return this.#read(name, stored, part);
  }

  /** Returns the bytes of a tensor that is not divided. */
  async undivided(name: string): Promise<Uint8Array> {
    const stored = this.#entry(name);
    const [only, ...others] = stored.parts;
    const key = JSON.stringify(wholePart(stored.shape).ranges);
    if (!only || others.length > 0 || JSON.stringify(only.ranges) !== key)
      throw this.fail(name, "is divided; the state of a quantization is not");
    return this.#read(name, stored, only);
  }

  async close(): Promise<void> {
    for (const each of this.#files.values()) await (await each.catch(() => undefined))?.close();
  }

  async #assembled(name: string, stored: StoredTensor, part: TensorPart): Promise<Uint8Array> {
    let out: Uint8Array | undefined;
    for (const each of stored.parts) {
      const from = { shape: stored.shape, ranges: each.ranges };
      const overlaps = overlapsOf(from, part);
      if (overlaps.some(({ length }) => length === 0)) continue;
      const bytes = await this.#read(name, stored, each);
      const item = bytes.length / sizeOfPart(from);
      out ??= new Uint8Array(sizeOfPart(part) * item);
      copyOverlaps({ bytes, part: from }, { bytes: out, part }, overlaps, item);
    }
    return out ?? new Uint8Array();
  }

  async #read(name: string, { dtype }: StoredTensor, { stored, copies }: StoredPart): Promise<Uint8Array> {
    const { file: number, sha256 } = this.#copyOf(name, copies);
    const file = await this.#open(number);
    const entry = file.entry(name);
    if (entry.dtype !== dtype || !sameShape(entry.shape, stored))
      throw new FileError(
        `${file.path}: tensor "${name}": is ${entry.dtype} [${entry.shape}] and the index says ${dtype} [${stored}]; the files are of two checkpoints`,
      );
    const bytes = await file.read(entry);
    if (digestOf(bytes) !== sha256)
      throw new FileError(
        `${file.path}: tensor "${name}": its contents are not those that were saved; the file is damaged`,
      );
    return bytes;
  }

  /** Returns the bytes that this rank had, or the bytes of the part that are equal on all ranks. */
  #copyOf(name: string, copies: readonly PartCopy[]): PartCopy {
    const { rank, size } = this.reader;
    const ownCopy = size === this.index.ranks ? copies.find(({ ranks }) => ranks.includes(rank)) : undefined;
    const [only, ...others] = copies as readonly [PartCopy, ...PartCopy[]];
    if (ownCopy) return ownCopy;
    if (others.length === 0) return only;
    const [a, b] = [only, others[0] as PartCopy].map(({ ranks }) => ranks.join(", "));
    throw this.fail(
      name,
      `had other bits on ranks ${a} than on ranks ${b}, so it is no one's on other ranks; resume on ${this.index.ranks} ranks as they were (amaxReductionGroup keeps delayed scales the same on all)`,
    );
  }

  #requireRecipe(name: string, saved: string | undefined, expected: string | undefined): void {
    if (saved === expected) return;
    throw this.fail(
      name,
      `is quantized as ${saved ?? "nothing"} there and as ${expected ?? "nothing"} in the module; make the module as it was, with quantizedModelInit and the recipe or without, and with the same parts`,
    );
  }

  #entry(name: string): StoredTensor {
    const { tensors } = this.index;
    const entry = Object.hasOwn(tensors, name) ? tensors[name] : undefined;
    if (entry) return entry;
    throw this.fail(name, `is needed and not there; there are ${someNames(Object.keys(tensors))}`);
  }

  #open(number: number): Promise<SafetensorsFile> {
    const file = this.#files.get(number) ?? SafetensorsFile.open(shardPath(this.folder, this.index, number));
    this.#files.set(number, file);
    return file;
  }

  /** Returns an error about a tensor. */
  fail(name: string, why: string): FileError {
    return new FileError(`${this.folder}: tensor "${name}": ${why}`);
  }
}

/** The bytes of a part, and its position in the whole tensor. */
interface PartBytes {
  readonly bytes: Uint8Array;
  readonly part: TensorPart;
}

/** Copies the elements that two parts have in common. An element has `item` bytes. */
function copyOverlaps(
  from: PartBytes,
  to: PartBytes,
  overlaps: readonly (readonly Overlap[])[],
  item: number,
): void {
  const strides = ({ part }: PartBytes): readonly number[] => {
    const sizes = part.ranges.map((ranges) => ranges.reduce((sum, [begin, end]) => sum + end - begin, 0));
    return sizes.map((_, i) => sizes.slice(i + 1).reduce((product, size) => product * size, item));
  };
  const [fromStrides, toStrides] = [strides(from), strides(to)];
  const copy = (dimension: number, source: number, target: number): void => {
    const [fromStride, toStride] = [fromStrides[dimension], toStrides[dimension]];
    if (fromStride === undefined || toStride === undefined) {
      to.bytes.set(from.bytes.subarray(source, source + item), target);
      return;
    }
    const isLast = dimension === overlaps.length - 1;
    for (const { from: a, to: b, length } of overlaps[dimension] ?? []) {
      const [sourceStart, targetStart] = [source + a * fromStride, target + b * toStride];
      if (isLast) to.bytes.set(from.bytes.subarray(sourceStart, sourceStart + length * item), targetStart);
      else
        for (let i = 0; i < length; i++)
          copy(dimension + 1, sourceStart + i * fromStride, targetStart + i * toStride);
    }
  };
  copy(0, 0, 0);
}
