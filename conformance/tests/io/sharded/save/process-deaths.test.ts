/** A process that is killed while it saves a checkpoint leaves a complete one: the new one or the previous one. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, it } from "vitest";
import { loopbackOver } from "../../../../../src/collectives/loopback/loopback.js";
import { loadShardedCheckpoint, saveShardedCheckpoint } from "../../../../../src/io/index.js";
import { Linear } from "../../../../../src/modules/linear.js";
import { SGD } from "../../../../../src/optimizers/sgd.js";
import { RandomState } from "../../../../../src/quantizers/random-state.js";
import { useBackends } from "../../../harness/ranks/backends.js";

const backends = useBackends(1);
const SCRIPT = new URL("../saves.mjs", import.meta.url).pathname;

/** Starts the process, and kills it some time after its first save. */
async function killedAfter(folder: string, ms: number): Promise<void> {
  const child = spawn(process.execPath, [SCRIPT, folder], { stdio: ["ignore", "pipe", "inherit"] });
  try {
    await once(child.stdout, "data");
    await new Promise((resolve) => setTimeout(resolve, ms));
  } finally {
    child.kill("SIGKILL");
    await once(child, "close");
  }
}

it("a process killed at any time while it saves leaves a loadable checkpoint of one step", async () => {
  const folder = mkdtempSync(join(tmpdir(), "lockstep-killed-"));
  const [group] = loopbackOver(backends, 20_000);
  if (!group) throw new Error("there is no rank");
  const random = new RandomState(1n);
  using module = new Linear(group.backend, 128, 128, { dtype: "f32", bias: false, random });
  using optimizer = new SGD(module, { learningRate: 1, momentum: 0.5 });
  const state = { module, optimizer, group, random };
  for (const ms of [0, 3, 11, 24, 41]) {
    await killedAfter(folder, ms);
    const { step } = (await loadShardedCheckpoint(folder, state)) as { readonly step: number };
    const tensors = [...optimizer.slots.values()].flatMap(({ master, buffers }) => [
      master,
      ...buffers.values(),
    ]);
    for (const tensor of tensors) expect(new Set(tensor.dataSync())).toEqual(new Set([step]));
  }
  await saveShardedCheckpoint(folder, state);
  expect(readdirSync(folder).filter((name) => name.startsWith("generation"))).toHaveLength(1);
  rmSync(folder, { recursive: true });
});
