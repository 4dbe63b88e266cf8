/** Writing files: with any names, links, permissions and concurrent writers, a file is either complete or absent. */
import { spawnSync } from "node:child_process";
import {
  chmodSync,
  linkSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { FileError, LockstepError } from "../../../src/errors.js";
import type { PutTensor } from "../../../src/io/header/header.js";
import { SafetensorsFile } from "../../../src/io/safetensors.js";
import { writeSafetensors } from "../../../src/io/safetensors-writer.js";
import { draws } from "../harness/draws.js";
import { useFileSystem } from "../harness/file-system.js";
import { useFolder } from "./folder.js";

const faults = { taken: 0, calls: [] as string[], fail: "" };

/** The file system module, with its calls recorded and with injected faults. */
useFileSystem((fileSystem) => {
  const failing = (name: string): void => {
    faults.calls.push(name);
    if (faults.fail.split(",").includes(name)) throw Object.assign(new Error("no"), { code: "EIO" });
  };
  return {
    async open(path: string, flags: string | number, mode?: number) {
      if (flags === "wx" && faults.taken-- > 0) throw Object.assign(new Error("taken"), { code: "EEXIST" });
      const handle = await fileSystem.open(path, flags, mode);
      const kind = flags === "wx" ? "file" : "folder";
      const [sync, write] = [handle.sync.bind(handle), handle.write.bind(handle)];
      const close = handle.close.bind(handle);
      handle.close = async () => {
        await close();
        failing(`close ${kind}`);
      };
      handle.sync = async () => {
        failing(`sync ${kind}`);
        return sync();
      };
      handle.write = (async (...args: Parameters<typeof write>) => {
        failing("write");
        return write(...args);
      }) as typeof handle.write;
      return handle;
    },
    async rm(...args: Parameters<typeof fileSystem.rm>) {
      failing("rm");
      return fileSystem.rm(...args);
    },
    async rename(source: string, target: string) {
      failing("rename");
      return fileSystem.rename(source, target);
    },
  };
});

let folder = "";
let path = "";
useFolder((createdFolder) => {
  folder = createdFolder;
  path = join(folder, "out.safetensors");
  Object.assign(faults, { taken: 0, calls: [], fail: "" });
});

const plan = { tensors: [{ name: "a", dtype: "U8", shape: [2] }] } as const;
const writeA = (write: PutTensor): Promise<void> => write("a", Uint8Array.of(1, 2));
const write = (target = path): Promise<void> => writeSafetensors(target, plan, writeA);
const umask = process.umask();

describe("writing a file", () => {
  it("works although killed runs left files and temporary names are taken", async () => {
    for (let i = 0; i < 50; i++) writeFileSync(join(folder, `.lockstep-${process.pid}-${i}.tmp`), "stale");
    faults.taken = 5;
    await write();
    expect(statSync(path).size).toBeGreaterThan(8);
    expect(readdirSync(folder)).toHaveLength(51);
    faults.taken = 1000;
    await expect(write(join(folder, "other"))).rejects.toThrow(FileError);
    expect(readdirSync(folder)).toHaveLength(51);
  });

  it("flushes the file, renames it, then flushes the folder", async () => {
    await write();
    expect(faults.calls.filter((name) => name !== "write")).toEqual([
      "sync file",
      "close file",
      "rename",
      "sync folder",
      "close folder",
    ]);
  });

  it.each(["write", "sync file", "close file", "rename"])(
    "leaves no temporary file, and the old file unchanged, if %s fails",
    async (name) => {
      writeFileSync(path, "old");
      faults.fail = name;
      await expect(write()).rejects.toThrow(/cannot be written/);
      await expect(write()).rejects.toThrow(FileError);
      expect(readdirSync(folder)).toEqual(["out.safetensors"]);
      expect(readFileSync(path, "utf8")).toBe("old");
    },
  );

  it("reports the first error, even if the unfinished file cannot be removed", async () => {
    faults.fail = "write,rm";
    await expect(write()).rejects.toThrow(/cannot be written/);
    await expect(write()).rejects.toThrow(FileError);
  });

  it("reports that the folder cannot be flushed", async () => {
    faults.fail = "sync folder";
    await expect(write()).rejects.toThrow(/cannot be flushed to the disk/);
  });

  it("keeps the permissions of a file that it replaces, and makes the unfinished file private", async () => {
    await fc.assert(
      fc.asyncProperty(fc.integer({ min: 0o200, max: 0o7777 }), async (bits) => {
        const mode = bits | 0o200;
        writeFileSync(path, "old");
        chmodSync(path, mode);
        await writeSafetensors(path, plan, async (writeTensor) => {
          const [temporary = ""] = readdirSync(folder).filter((name) => name.endsWith(".tmp"));
          expect(statSync(join(folder, temporary)).mode & 0o777 & ~mode & 0o077).toBe(0);
          await writeA(writeTensor);
        });
        expect(statSync(path).mode & 0o7777).toBe(mode);
      }),
      { numRuns: draws(40) },
    );
    rmSync(path);
    await write();
    expect(statSync(path).mode & 0o777).toBe(0o666 & ~umask);
  });

  it("follows symbolic links to files, to missing files and through folders, and refuses circular links", async () => {
    mkdirSync(join(folder, "real"));
    symlinkSync("real", join(folder, "linked"));
    symlinkSync("linked/target", join(folder, "first"));
    symlinkSync("first", join(folder, "second"));
    for (let round = 0; round < 2; round++) {
      await write(join(folder, "second"));
      expect(readdirSync(join(folder, "real"))).toEqual(["target"]);
      expect(lstatSync(join(folder, "real/target")).isFile()).toBe(true);
      expect(readlinkSync(join(folder, "second"))).toBe("first");
    }
    symlinkSync("circle", join(folder, "circle"));
    await expect(write(join(folder, "circle"))).rejects.toThrow(/circle/);
    symlinkSync("no/such", join(folder, "nowhere"));
    await expect(write(join(folder, "nowhere"))).rejects.toThrow(/no such file or folder/);
    expect(readdirSync(folder).filter((name) => name.endsWith(".tmp"))).toEqual([]);
  });

  it("replaces only the given name of a file with several hard links, and leaves the other names' contents", async () => {
    writeFileSync(path, "old");
    linkSync(path, join(folder, "other"));
    await write();
    expect(readFileSync(join(folder, "other"), "utf8")).toBe("old");
  });

  it("lets any number of writers write one path at a time: the file is one of theirs, complete", async () => {
    const writers = Array.from({ length: 24 }, (_, i) =>
      writeSafetensors(
        path,
        { tensors: [{ name: "a", dtype: "U8", shape: [4096] }] },
        async (writeTensor) => {
          for (let offset = 0; offset < 4096; offset += 512)
            await writeTensor("a", new Uint8Array(512).fill(i), offset);
        },
      ),
    );
    await Promise.all(writers);
    expect(readdirSync(folder)).toEqual(["out.safetensors"]);
    const file = await SafetensorsFile.open(path);
    const bytes = await file.read(file.entry("a"));
    await file.close();
    expect(new Set(bytes).size).toBe(1);
  });

  it("has each byte at its offset, or names a byte that was written twice or not at all, and leaves no file", async () => {
    const sizes = [0, 1, 5, 9];
    const part = fc
      .nat(sizes.length - 1)
      .chain((i) =>
        fc.tuple(fc.constant(i), fc.integer({ min: -1, max: sizes[i]! + 1 }), fc.nat(sizes[i]! + 1)),
      );
    /** All bytes of all tensors, divided into pieces in random order. */
    const completeWrites = fc
      .tuple(
        ...sizes.map((size) => fc.uniqueArray(fc.nat(size), { maxLength: 3 })),
        fc.infiniteStream(fc.nat(9)),
      )
      .map((drawnCuts) => {
        const order = drawnCuts.at(-1) as Iterator<number>;
        const writes = sizes.flatMap((size, i) => {
          const boundaries = [...new Set([0, ...(drawnCuts[i] as number[]), size])].sort((a, b) => a - b);
          return boundaries
            .slice(1)
            .map((end, cutIndex): [number, number, number] => [
              i,
              boundaries[cutIndex]!,
              end - boundaries[cutIndex]!,
            ]);
        });
        return writes
          .map((tensorWrite) => ({ tensorWrite, key: order.next().value as number }))
          .sort((a, b) => a.key - b.key)
          .map(({ tensorWrite }) => tensorWrite);
      });
    const plans = fc.oneof(
      fc.array(part, { maxLength: 5 }),
      completeWrites,
      fc.tuple(completeWrites, fc.array(part, { maxLength: 1 })).map(([a, b]) => [...a, ...b]),
      fc.tuple(completeWrites, fc.nat(9)).map(([a, omittedIndex]) => a.filter((_, i) => i !== omittedIndex)),
    );
    const tensors = sizes.map((size, i) => ({ name: `t${i}`, dtype: "U8", shape: [size] }) as const);
    await fc.assert(
      fc.asyncProperty(plans, fc.boolean(), async (writes, isConcurrent) => {
        rmSync(path, { force: true });
        const model = sizes.map((size) => new Array<number | undefined>(size).fill(undefined));
        let isRefused = false;
        let [value, isWrong] = [0, false];
        const calls = writes.map(([i, offset, count]) => {
          const bytes = Uint8Array.from({ length: count }, () => ++value & 255);
          const expectedBytes = model[i]!;
          isWrong ||= offset < 0 || offset + count > expectedBytes.length;
          for (const [k, byte] of bytes.entries()) {
            isWrong ||= expectedBytes[offset + k] !== undefined;
            if (!isWrong) expectedBytes[offset + k] = byte;
          }
          return () => [`t${i}`, bytes, offset] as const;
        });
        const complete =
          !isWrong && model.every((expectedBytes) => expectedBytes.every((byte) => byte !== undefined));
        try {
          await writeSafetensors(path, { tensors }, async (writeTensor) => {
            if (isConcurrent) await Promise.all(calls.map((call) => writeTensor(...call())));
            else for (const call of calls) await writeTensor(...call());
          });
        } catch (error) {
          expect(error).toBeInstanceOf(LockstepError);
          isRefused = true;
        }
        expect(isRefused).toBe(!complete);
        expect(readdirSync(folder)).toEqual(complete ? ["out.safetensors"] : []);
        if (!complete) return;
        const file = await SafetensorsFile.open(path);
        for (const [i, expectedBytes] of model.entries())
          expect([...(await file.read(file.entry(`t${i}`)))]).toEqual(expectedBytes);
        await file.close();
      }),
      {
        numRuns: draws(300),
        examples: [
          [
            [
              [1, 0, 1],
              [2, 0, 5],
              [3, 0, 5],
              [3, 0, 4],
            ],
            false,
          ],
        ],
      },
    );
  });

  const smallDisk = process.platform === "linux" && process.getuid?.() === 0;
  it.skipIf(!smallDisk)(
    `leaves no file on a full disk${smallDisk ? "" : " (needs root and tmpfs: not tried)"}`,
    async ({ skip }) => {
      const disk = join(folder, "disk");
      mkdirSync(disk);
      const isMounted = spawnSync("mount", ["-t", "tmpfs", "-o", "size=64k", "tmpfs", disk]).status === 0;
      if (!isMounted) return skip("mount was not permitted");
      try {
        const largePlan = { tensors: [{ name: "a", dtype: "U8", shape: [1 << 20] }] } as const;
        const body = (writeTensor: PutTensor): Promise<void> => writeTensor("a", new Uint8Array(1 << 20));
        await expect(writeSafetensors(join(disk, "out"), largePlan, body)).rejects.toThrow(
          /the disk is full/,
        );
        expect(readdirSync(disk)).toEqual([]);
      } finally {
        spawnSync("umount", [disk]);
      }
    },
  );
});
