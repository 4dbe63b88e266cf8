/**
 * An index names only files that are on the disk: these files, and the entries of all folders, are flushed before the index
 * appears.
 */
import { basename, dirname, relative } from "node:path";
import { expect, it } from "vitest";
import { loopbackOver } from "../../../../../src/collectives/loopback/loopback.js";
import { saveShardedCheckpoint } from "../../../../../src/io/sharded/save.js";
import { Linear } from "../../../../../src/modules/linear.js";
import { RandomState } from "../../../../../src/quantizers/random-state.js";
import { useFileSystem } from "../../../harness/file-system.js";
import { useBackends } from "../../../harness/ranks/backends.js";
import { useFolder } from "../../folder.js";

const unflushed = new Set<string>();
/** The files and folders that were not yet flushed when an index appeared. */
const unflushedFiles: string[][] = [];

/** The file system module, which lists files and folders that have changed since they were flushed. */
useFileSystem((fileSystem) => {
  return {
    async mkdir(path: string, options: { recursive: true }) {
      const createdPath = await fileSystem.mkdir(path, options);
      if (createdPath !== undefined) unflushed.add(dirname(path));
      return createdPath;
    },
    async open(path: string, flags: string, mode?: number) {
      const handle = await fileSystem.open(path, flags, mode);
      const [sync, write] = [handle.sync.bind(handle), handle.write.bind(handle)];
      handle.sync = async () => {
        await sync();
        unflushed.delete(path);
      };
      handle.write = (async (...args: Parameters<typeof write>) => {
        unflushed.add(path);
        return write(...args);
      }) as typeof handle.write;
      return handle;
    },
    async rename(source: string, target: string) {
      if (basename(target) === "checkpoint.index.json") unflushedFiles.push([...unflushed]);
      await fileSystem.rename(source, target);
      if (unflushed.delete(source)) unflushed.add(target);
      unflushed.add(dirname(target));
    },
  };
});

const backends = useBackends(3);
let folder = "";
useFolder((createdFolder) => {
  folder = createdFolder;
  unflushed.clear();
  unflushedFiles.length = 0;
});

it.each([1, 2, 3])(
  "the files of %i ranks are flushed before the index appears, and it before the save ends",
  async (size) => {
    for (let save = 0; save < 2; save++)
      await Promise.all(
        loopbackOver(backends.slice(0, size), 20_000).map(async (group) => {
          using module = new Linear(group.backend, 4, 4, { dtype: "f32", random: new RandomState(3n) });
          await saveShardedCheckpoint(folder, { module, group });
        }),
      );
    expect(unflushedFiles.map((paths) => paths.map((path) => relative(folder, path)))).toEqual([[], []]);
    expect([...unflushed].map((path) => relative(folder, path))).toEqual([]);
  },
);
