/** Writes GGUF files of any contents, right or wrong, for tests. */

/** A number of this many bytes, little-endian. */
export interface Word {
  readonly bytes: 1 | 4 | 8;
  readonly value: number | bigint;
}
/** A string with its length before it, a number, or bytes. */
export type Piece = string | Word | Uint8Array;

export const u8 = (value: number): Word => ({ bytes: 1, value });
export const u32 = (value: number): Word => ({ bytes: 4, value });
export const u64 = (value: number | bigint): Word => ({ bytes: 8, value });

/** The numbers of types. */
export const TYPE = { f32: 0, f16: 1, bf16: 30, mxfp4: 39, nvfp4: 40 } as const;

export function bytesOf(pieces: readonly Piece[]): Uint8Array {
  return Buffer.concat(pieces.map(pieceBytes));
}

function pieceBytes(piece: Piece): Uint8Array {
  if (piece instanceof Uint8Array) return piece;
  if (typeof piece === "string") {
    const text = new TextEncoder().encode(piece);
    return Buffer.concat([pieceBytes(u64(text.length)), text]);
  }
  const header = Buffer.alloc(8);
  header.writeBigUInt64LE(BigInt.asUintN(64, BigInt(piece.value)));
  return header.subarray(0, piece.bytes);
}

/** A tensor in a file: its dimensions in the order of the file, the contiguous one first. */
export interface TensorDescription {
  readonly name: string;
  readonly dimensions: readonly (number | bigint)[];
  readonly type: number;
  readonly offset: number | bigint;
}

/** The contents of a file. The counts are the lengths of the lists unless they are specified. */
export interface Contents {
  readonly magic?: number;
  readonly version?: number;
  readonly tensorCount?: number | bigint;
  readonly metadataCount?: number | bigint;
  /** Each entry as its pieces: key, type, value. */
  readonly metadata?: readonly (readonly Piece[])[];
  readonly tensors?: readonly TensorDescription[];
  readonly data?: Uint8Array;
}

const MAGIC = 0x46554747;
const ALIGNMENT = 32;

/** The bytes of a file, whose data are aligned to 32. */
export function ggufBytes({
  magic = MAGIC,
  version = 3,
  metadata = [],
  tensors = [],
  tensorCount = tensors.length,
  metadataCount = metadata.length,
  data = new Uint8Array(),
}: Contents): Uint8Array {
  const header = bytesOf([
    ...[u32(magic), u32(version), u64(tensorCount), u64(metadataCount)],
    ...metadata.flat(),
    ...tensors.flatMap(({ name, dimensions, type, offset }) => [
      name,
      u32(dimensions.length),
      ...dimensions.map(u64),
      u32(type),
      u64(offset),
    ]),
  ]);
  const padding = new Uint8Array((ALIGNMENT - (header.length % ALIGNMENT)) % ALIGNMENT);
  return Buffer.concat([header, padding, data]);
}
