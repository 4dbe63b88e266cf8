/** Blocking file transfers move the same bytes as asynchronous transfers, and report the same errors. */
import { mkdtemp, open, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { FileError } from "../../../../src/errors.js";
import { readAt, waitForFiles, writeAt } from "../../../../src/io/files.js";
import { draws } from "../../harness/draws.js";

let folder = "";
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "lockstep-waiting-"));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

const law = async (name: string): Promise<void> => {
  const path = join(folder, name);
  await fc.assert(
    fc.asyncProperty(
      fc.uint8Array({ minLength: 1, maxLength: 200 }),
      fc.nat(50),
      fc.nat(250),
      fc.boolean(),
      async (bytes, offset, length, isShared) => {
        const handle = await open(path, "w+");
        try {
          // memory of kernels is shared
          const fileBytes = isShared ? new Uint8Array(new SharedArrayBuffer(bytes.length)) : bytes;
          fileBytes.set(bytes);
          await writeAt(path, handle, fileBytes, offset);
          const file = new Uint8Array(offset + bytes.length);
          file.set(bytes, offset);
          expect(await readAt(path, handle, 0, file.length)).toEqual(file);
          const result = await readAt(path, handle, offset, length).catch((error: unknown) => error);
          if (length <= bytes.length) expect(result).toEqual(file.slice(offset, offset + length));
          else {
            expect(result).toBeInstanceOf(FileError);
            expect(String(result)).toContain(`${path}: ends at byte ${file.length};`);
          }
        } finally {
          await handle.close();
        }
      },
    ),
    { numRuns: draws(50) },
  );
  const handle = await open(path, "r");
  await expect(writeAt(path, handle, new Uint8Array(1), 0)).rejects.toThrow(`${path}: cannot be written`);
  await handle.close();
  await expect(readAt(path, handle, 0, 1)).rejects.toThrow(`${path}: cannot be read`);
};

describe("files", () => {
  it("while other work goes on", () => law("other"));

  it("while the thread waits", async () => {
    using _waiting = waitForFiles();
    await law("waiting");
    // nothing else runs between the beginning and the end of a read
    const path = join(folder, "waiting");
    const handle = await open(path, "r");
    let hasRun = false;
    setImmediate(() => {
      hasRun = true;
    });
    await readAt(path, handle, 0, 1);
    expect(hasRun).toBe(false);
    await handle.close();
  });
});
