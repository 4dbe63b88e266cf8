/** Rank 0 leaves no files in the current folder of a program. */
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { Hub } from "../../../../src/collectives/processes/hub.js";
import { freePort } from "../../harness/ranks/processes.js";

let folder = "";
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "lockstep-hub-"));
});
afterEach(() => {
  vi.unstubAllEnvs();
  rmSync(folder, { recursive: true, force: true });
});

/** A group of one rank, which listens while the test runs. */
async function openListeningHub(): Promise<Hub> {
  const port = await freePort();
  const address = { address: "127.0.0.1", port, token: "token" };
  const hub = new Hub({ rank: 0, size: 1, ...address, timeoutMs: 10_000 }, () => undefined);
  expect(await hub.open()).toBeUndefined();
  return hub;
}

it("its socket is not in the folder where the program runs", async () => {
  vi.stubEnv("TMPDIR", undefined);
  // other tests may write to other folders meanwhile
  const temporaryFolders = (): readonly string[] => readdirSync(".").filter((name) => name.startsWith("tmp"));
  const foldersBefore = temporaryFolders();
  const hub = await openListeningHub();
  expect(temporaryFolders()).toEqual(foldersBefore);
  await hub.leave();
});

it("its socket lies in a folder for temporary files until it closes", async () => {
  vi.stubEnv("TMPDIR", folder);
  const hub = await openListeningHub();
  expect(readdirSync(folder)).toHaveLength(1);
  await hub.leave();
  expect(readdirSync(folder)).toEqual([]);
});
