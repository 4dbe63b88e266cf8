/** All bytes are transferred, however few a system call transfers at a time, and errors of system calls are reported in words. */
import type { FileHandle } from "node:fs/promises";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { ArgumentError, FileError } from "../../../src/errors.js";
import { fileError, readAt, requirePath, writeAt } from "../../../src/io/files.js";
import { jsonText } from "../../../src/io/json/json-write.js";
import { draws } from "../harness/draws.js";

/** A file in memory. Each call transfers as many bytes as the next of `transferSizes` says, at least one byte if any is left. */
function handleOf(file: Uint8Array, transferSizes: readonly number[]): FileHandle {
  let calls = 0;
  const transferSize = (requestedBytes: number, bytesLeft: number): number =>
    Math.max(
      0,
      Math.min(requestedBytes, bytesLeft, 1 + (transferSizes[calls++ % transferSizes.length] ?? 0)),
    );
  const handle: Pick<FileHandle, "read" | "write"> = {
    read: (async (bytes: Uint8Array, offset: number, requestedBytes: number, position: number) => {
      if (offset + requestedBytes > bytes.length)
        throw new RangeError(`${requestedBytes} bytes at ${offset} of ${bytes.length}`);
      const bytesRead = transferSize(requestedBytes, file.length - position);
      bytes.set(file.subarray(position, position + bytesRead), offset);
      return { bytesRead, buffer: bytes };
    }) as FileHandle["read"],
    write: (async (bytes: Uint8Array, offset: number, requestedBytes: number, position: number) => {
      if (offset + requestedBytes > bytes.length)
        throw new RangeError(`${requestedBytes} bytes at ${offset} of ${bytes.length}`);
      const bytesWritten = transferSize(requestedBytes, Infinity);
      file.set(bytes.subarray(offset, offset + bytesWritten), position);
      return { bytesWritten, buffer: bytes };
    }) as FileHandle["write"],
  };
  return handle as FileHandle;
}

const transferSizes = fc.array(fc.nat(9), { minLength: 1, maxLength: 5 });

describe("bytes of a file", () => {
  it("are read completely, or an error is thrown if the file ends before them", async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.uint8Array({ maxLength: 60 }),
        fc.nat(60),
        fc.nat(60),
        transferSizes,
        async (file, offset, length, sizes) => {
          const pendingRead = readAt("x", handleOf(file, sizes), offset, length).catch(
            (error: unknown) => error,
          );
          const result = await pendingRead;
          if (offset + length <= file.length || length === 0) {
            expect(result).toEqual(length === 0 ? new Uint8Array() : file.slice(offset, offset + length));
            return;
          }
          expect(result).toBeInstanceOf(FileError);
          expect(String(result)).toContain(`x: ends at byte ${Math.max(offset, file.length)};`);
        },
      ),
      { numRuns: draws(300) },
    );
  });

  it("are written completely, at their offset", async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.uint8Array({ maxLength: 40 }),
        fc.nat(20),
        transferSizes,
        async (bytes, offset, sizes) => {
          const file = new Uint8Array(64).fill(0xa5);
          const expected = file.slice();
          expected.set(bytes, offset);
          await writeAt("x", handleOf(file, sizes), bytes, offset);
          expect(file).toEqual(expected);
        },
      ),
      { numRuns: draws(300) },
    );
  });
});

describe("an error of the operating system", () => {
  const codes = [
    "ENOENT",
    "EACCES",
    "EPERM",
    "EROFS",
    "EISDIR",
    "ENOTDIR",
    "ELOOP",
    "ENAMETOOLONG",
    "EMFILE",
  ];
  const otherCodes = ["ENFILE", "ENOSPC", "EDQUOT", "EFBIG", "ENXIO", "ERR_INVALID_ARG_VALUE"];

  it.each([...codes, ...otherCodes])("%s is explained in words", (code) => {
    const cause = Object.assign(new Error(`${code}: of the system`), { code });
    const error = fileError("a/b", "cannot be read", cause);
    expect(error).toBeInstanceOf(FileError);
    expect(error.cause).toBe(cause);
    expect(error.message).toMatch(/^a\/b: cannot be read: [a-z' -]+$/);
  });

  it("is given by its code, or unchanged, if there is no explanation for it", () => {
    const messageOf = (cause: unknown): string => fileError("x", "cannot be read", cause).message;
    expect(messageOf(Object.assign(new Error("no"), { code: "EXYZ" }))).toBe("x: cannot be read: EXYZ");
    expect(messageOf(new Error("no"))).toBe("x: cannot be read: Error: no");
    expect(messageOf("no")).toBe("x: cannot be read: no");
  });

  it("that is a FileError already is passed on unchanged", () => {
    const error = new FileError("y: is gone");
    expect(fileError("x", "cannot be read", error)).toBe(error);
  });

  it.each([
    ["", "an empty string"],
    [undefined, "undefined"],
    [7, "7"],
    [{}, "a plain object"],
  ])("is not reported for the path %j, which is refused before as %s", (path, title) => {
    expect(() => requirePath("load", path)).toThrow(ArgumentError);
    expect(() => requirePath("load", path)).toThrow(`load: path is ${title}; it must be the path of a file`);
  });
});

describe("a value that JSON cannot represent", () => {
  const messageOf = (keys: readonly (string | number)[]): unknown =>
    [...keys].reverse().reduce<unknown>((value, key) => {
      if (typeof key === "string") return { [key]: value };
      return [...Array.from({ length: key }, () => 0), value];
    }, Number.NaN);

  it("is named by its path from the root, shortened in the middle if long, and long keys by their beginning", () => {
    fc.assert(
      fc.property(
        fc.array(fc.oneof(fc.nat(3), fc.stringMatching(/^[a-z]{1,60}$/)), { maxLength: 24 }),
        (keys) => {
          const steps = keys.map((key) => (typeof key === "number" ? `[${key}]` : `.${key.slice(0, 40)}`));
          const shownSteps = steps.length <= 16 ? steps : [...steps.slice(0, 8), "…", ...steps.slice(-8)];
          expect(() => jsonText("extra", messageOf(keys))).toThrow(
            `checkpoint: extra${shownSteps.join("")} is number NaN, which`,
          );
        },
      ),
      { numRuns: draws(200) },
    );
  });
});
