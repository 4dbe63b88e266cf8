/** One block of a packed layout: reads its bytes by offset, little endian. */
import { valueOfCode } from "../../formats/derive.js";

/** The value of each f16. Computed at the first use, because it takes a quarter of the time in which the package is imported. */
let halves: Float32Array | undefined;

/** A cursor on the blocks of a tensor. */
export class Block {
  /** The offset of the block in the bytes of the tensor. */
  at = 0;
  readonly #view: DataView;

  constructor(private readonly bytes: Uint8Array) {
    this.#view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  }

  u8(offset: number): number {
    return this.bytes[this.at + offset] as number;
  }

  i8(offset: number): number {
    return this.#view.getInt8(this.at + offset);
  }

  u16(offset: number): number {
    return this.#view.getUint16(this.at + offset, true);
  }

  u32(offset: number): number {
    return this.#view.getUint32(this.at + offset, true);
  }

  f16(offset: number): number {
    return halfOf(this.u16(offset));
  }

  f32(offset: number): number {
    return this.#view.getFloat32(this.at + offset, true);
  }
}

/** The value of an f16 from its bits. */
export function halfOf(bits: number): number {
  halves ??= Float32Array.from({ length: 65536 }, (_, code) => valueOfCode("f16", code));
  return halves[bits] as number;
}

/** Decodes one block: calls `put` with the value at each index. Products and sums are rounded to f32 one after another. */
export type Decode = (block: Block, put: (index: number, value: number) => void) => void;
