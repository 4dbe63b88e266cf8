/** Temporary folders for tests that write files. */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach } from "vitest";

/** Gives each test a folder of its own, and removes it afterwards. */
export function useFolder(receive: (folder: string) => void): void {
  let folder = "";
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), "lockstep-test-"));
    receive(folder);
  });
  afterEach(() => rmSync(folder, { recursive: true }));
}
