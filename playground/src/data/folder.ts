/** The files of a folder that a user chose or dropped. They stay in the browser. */

/** A folder: its name, and the files directly in it. */
export interface ChosenFolder {
  readonly name: string;
  readonly files: ReadonlyMap<string, File>;
}

/** The files that a checkpoint can have. */
const IS_READ = /\.(json|safetensors|gguf)$/;
/** The maximum number of files of a checkpoint. Published models have a few hundred. */
const MAX_FILES = 4096;

/** The folder of files that a user chose together: those that lie directly in it, or files without a folder. */
export function chosenFolder(files: readonly File[]): ChosenFolder {
  const [first] = files;
  const name = first?.webkitRelativePath.split("/")[0] || "folder";
  const direct = files.filter(({ webkitRelativePath: path }) => path.split("/").length <= 2);
  return folderOf(name, direct);
}

/** The folder of a drop: the first dropped folder, or else the dropped files. Throws an error for too many files. */
export async function droppedFolder(items: DataTransferItemList): Promise<ChosenFolder> {
  // the list is empty after the first await
  const dropped = [...items].map((item) => ({ entry: item.webkitGetAsEntry(), file: item.getAsFile() }));
  const folder = dropped.map(({ entry }) => entry).find((entry) => entry?.isDirectory);
  if (!folder)
    return folderOf(
      "folder",
      dropped.flatMap(({ file }) => file ?? []),
    );
  const entries = await entriesOf(folder as FileSystemDirectoryEntry);
  const files = entries.filter((entry): entry is FileSystemFileEntry => entry.isFile);
  return folderOf(folder.name, await Promise.all(files.map(fileOf)));
}

function folderOf(name: string, files: readonly File[]): ChosenFolder {
  return {
    name,
    files: new Map(files.filter((file) => IS_READ.test(file.name)).map((file) => [file.name, file])),
  };
}

/** The entries of a folder. A browser gives a few of them at a time. */
async function entriesOf(folder: FileSystemDirectoryEntry): Promise<readonly FileSystemEntry[]> {
  const reader = folder.createReader();
  const entries: FileSystemEntry[] = [];
  for (;;) {
    const some = await new Promise<FileSystemEntry[]>((resolve, reject) =>
      reader.readEntries(resolve, reject),
    );
    if (some.length === 0) return entries;
    entries.push(...some);
    if (entries.length > MAX_FILES)
      throw new Error(`${folder.name} has more than ${MAX_FILES} files; drop the folder of one model`);
  }
}

function fileOf(entry: FileSystemFileEntry): Promise<File> {
  return new Promise((resolve, reject) => entry.file(resolve, reject));
}
