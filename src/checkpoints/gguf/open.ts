/** Opens GGUF files on a disk. */
import { openByteFile } from "../../io/files.js";
import { GgufFile } from "./file.js";
import { MAGIC } from "./header.js";

/** Opens a file and checks its header. Throws the errors of `GgufFile.of`, and `FileError` if the file cannot be read. */
export async function openGgufFile(path: string): Promise<GgufFile> {
  const file = await openByteFile(path);
  try {
    return await GgufFile.of(path, file);
  } catch (error) {
    await file.close();
    throw error;
  }
}

/** Whether a file is a GGUF file, by its name or its first bytes. False if the file cannot be read. */
export async function isGguf(path: string): Promise<boolean> {
  if (path.endsWith(".gguf")) return true;
  const file = await openByteFile(path).catch(() => undefined);
  if (!file) return false;
  try {
    const bytes = await file.read(0, Math.min(file.size, MAGIC.length));
    return new TextDecoder("latin1").decode(bytes) === MAGIC;
  } finally {
    await file.close();
  }
}
