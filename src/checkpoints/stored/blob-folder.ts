/** The files that a user chose in a browser, as the folder of a checkpoint. */
import { FileError } from "../../errors.js";
import { type BlobLike, blobFile } from "../../io/byte-file.js";
import { SafetensorsBlob } from "../../io/safetensors-blob.js";
import { GgufFile } from "../gguf/file.js";
import { type CheckpointFolder, missingFile } from "./folder.js";

/** A folder with these files, by name. `path` names the folder in errors. */
export function blobFolder(path: string, files: ReadonlyMap<string, BlobLike>): CheckpointFolder {
  const pathOf = (name: string): string => `${path}/${name}`;
  const folder: CheckpointFolder = {
    path,
    pathOf,
    names: async () => [...files.keys()],
    readText: async (name, maxBytes) => {
      const blob = files.get(name);
      if (!blob) return undefined;
      if (blob.size > maxBytes)
        throw new FileError(`${pathOf(name)}: has ${blob.size} bytes; ${maxBytes} are the most`);
      return new TextDecoder().decode(await blobFile(pathOf(name), blob).read(0, blob.size));
    },
    openSafetensors: async (name) => {
      const blob = files.get(name);
      return blob && SafetensorsBlob.open(pathOf(name), blob);
    },
    openGguf: async (name) => {
      const blob = files.get(name);
      if (!blob) throw missingFile(folder, name);
      return GgufFile.of(pathOf(name), blobFile(pathOf(name), blob));
    },
  };
  return folder;
}
