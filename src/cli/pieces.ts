/** Output files that are written piece by piece. Each piece reads its input, computes, and writes a few tensors. */
import { LockstepError } from "../errors.js";
import { fileBytes } from "../io/dtypes.js";
import type { Metadata, PutTensor, TensorEntry, TensorPlan } from "../io/header/header.js";
import { headerTooLong, minHeaderBytes } from "../io/header/header-write.js";
import { MAX_HEADER_BYTES } from "../io/limits.js";
import type { TensorSource } from "../io/source.js";
import { printable } from "../text/printable.js";
import type { OpenFile } from "./files.js";
import type { Session } from "./session.js";

/** A part of the output file: some of its tensors, and a function that computes and writes them. */
export interface Piece {
  /** The name of the input tensor, for error messages. */
  readonly subject: string;
  readonly outputs: readonly TensorPlan[];
  readonly metadata?: Metadata;
  readonly produce: (put: PutTensor) => Promise<void>;
}

const COPY_BYTES = 8 << 20;

/** Returns the piece that copies a tensor unchanged. */
export function copyPiece(file: TensorSource, entry: TensorEntry): Piece {
  const size = entry.end - entry.begin;
  return {
    subject: entry.name,
    outputs: [entry],
    async produce(put) {
      for (let offset = 0; offset < size; offset += COPY_BYTES) {
        await put(entry.name, await file.read(entry, offset, Math.min(size, offset + COPY_BYTES)), offset);
      }
    },
  };
}

/**
 * Returns the pieces for all tensors of a file: the result of `plan` or, if it is undefined, a copy. Errors name the tensor.
 * Throws `FileError` as soon as the header of `output` would be too long: a header of 100 MB may have a million tensors.
 */
export async function planPieces(
  file: TensorSource,
  output: string,
  plan: (entry: TensorEntry) => Piece | undefined,
): Promise<Piece[]> {
  const pieces: Piece[] = [];
  let headerBytes = 0;
  for (const entry of file.tensors.values()) {
    const piece = await withTensorName(entry.name, () => plan(entry) ?? copyPiece(file, entry));
    headerBytes += minHeaderBytes(piece.outputs, piece.metadata ?? {});
    if (headerBytes > MAX_HEADER_BYTES) throw headerTooLong(output);
    pieces.push(piece);
  }
  return pieces;
}

/** Writes the file that consists of these pieces, one after another. Errors name the tensor of the piece. */
export async function writePieces(
  session: Session,
  path: string,
  pieces: readonly Piece[],
  metadata: Metadata,
): Promise<void> {
  const plan = {
    tensors: pieces.flatMap((piece) => piece.outputs),
    metadata: mergeMetadata([metadata, ...pieces.map((piece) => piece.metadata ?? {})]),
  };
  const sizes = plan.tensors.map(({ dtype, shape }) => fileBytes(dtype, shape));
  const progress = session.progress(
    sizes.reduce((sum, size) => sum + size, 0),
    "B",
  );
  try {
    await session.files.write(path, plan, async (put) => {
      const putAndCount: PutTensor = async (name, bytes, offset) => {
        await put(name, bytes, offset);
        progress.add(bytes.length);
      };
      for (const piece of pieces) await withTensorName(piece.subject, () => piece.produce(putAndCount));
    });
  } finally {
    progress.finish();
  }
}

/** Merges objects; later entries of a key win. */
function mergeMetadata(metadataList: readonly Metadata[]): Metadata {
  const entries = new Map<string, string>();
  for (const metadata of metadataList)
    for (const [key, value] of Object.entries(metadata)) entries.set(key, value);
  return Object.fromEntries(entries);
}

/** Runs `body`. If it throws a `LockstepError`, the name of the tensor is added to the message. */
export async function withTensorName<T>(tensor: string, body: () => T | Promise<T>): Promise<T> {
  try {
    return await body();
  } catch (error) {
    if (!(error instanceof LockstepError) || error.message.includes(printable(`tensor "${tensor}"`)))
      throw error;
    throw new LockstepError(error.code, `tensor "${tensor}": ${error.message}`, { cause: error });
  }
}

/** Calls `body` with the opened file and closes it afterwards. */
export async function withFile<T>(open: Promise<OpenFile>, body: (file: OpenFile) => Promise<T>): Promise<T> {
  const file = await open;
  try {
    return await body(file);
  } finally {
    await file.close();
  }
}
