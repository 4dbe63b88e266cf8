/**
 * Loading a checkpoint changes nothing if it throws: for false records with a correct digest, and for runs that the checkpoint
 * does not fit.
 */
import { join } from "node:path";
import { beforeEach, describe, expect, it } from "vitest";
import { ArgumentError, DisposedError, FileError } from "../../../../src/errors.js";
import { CheckpointDigest, withDigest } from "../../../../src/io/checkpoint-record.js";
import { loadCheckpoint, saveCheckpoint } from "../../../../src/io/index.js";
import { SafetensorsFile } from "../../../../src/io/safetensors.js";
import { writeSafetensors } from "../../../../src/io/safetensors-writer.js";
import { Linear } from "../../../../src/modules/linear.js";
import { AdamW } from "../../../../src/optimizers/adamw.js";
import { RandomState } from "../../../../src/quantizers/random-state.js";
import { useBackend } from "../../harness/suite.js";
import { useFolder } from "../folder.js";

const backend = useBackend({ threads: 1, datapath: "hopper" });
let path = "";
useFolder((folder) => {
  path = join(folder, "run.safetensors");
});

describe("a checkpoint that cannot be loaded", () => {
  /** A run whose bits are compared. */
  const runOf = (firstValue: number) => {
    const random = new RandomState(BigInt(firstValue), 3n);
    const module = new Linear(backend(), 4, 4, { random, dtype: "bf16" });
    const optimizer = new AdamW(module, { learningRate: 0.1 });
    for (const slot of optimizer.slots.values()) slot.steps = firstValue;
    const slots = [...optimizer.slots.values()].flatMap(({ master, buffers }) => [
      master,
      ...buffers.values(),
    ]);
    const tensors = [...module.parameters().map(({ tensor }) => tensor), ...slots];
    const bits = (): string =>
      [
        ...tensors.map((x) => (x.disposed ? "" : String(x.dataSync()))),
        ...[...optimizer.slots.values()].map(({ steps }) => steps),
        `${random.seed} ${random.offset}`,
      ].join();
    const end = (): void => {
      optimizer.dispose();
      module.dispose();
    };
    return { state: { module, optimizer, random }, tensors, bits, end };
  };
  /** Loads into another run, which must refuse the checkpoint and stay unchanged. */
  async function expectUnchanged(
    error: typeof FileError | typeof DisposedError,
    disposed = -1,
  ): Promise<void> {
    const run = runOf(80);
    run.tensors[disposed]?.dispose();
    const bitsBefore = run.bits();
    await expect(loadCheckpoint(path, run.state)).rejects.toThrow(error);
    expect(run.bits()).toBe(bitsBefore);
    run.end();
  }
  beforeEach(async () => {
    const run = runOf(40);
    await saveCheckpoint(path, run.state);
    run.end();
  });

  it.each(["-1", String(2n ** 64n), "1.5", "", "0x10"])(
    "changes nothing if its seed or offset is %j",
    async (word) => {
      const file = await SafetensorsFile.open(path);
      const entries = [...file.tensors.values()].sort((a, b) => (a.name < b.name ? -1 : 1));
      const tensors = await Promise.all(
        entries.map(async (entry) => ({ ...entry, bytes: await file.read(entry) })),
      );
      await file.close();
      const { sha256: _, ...record } = JSON.parse(file.metadata["lockstep.checkpoint"] as string) as {
        readonly sha256: string;
        readonly random: { readonly seed: string; readonly offset: string };
      };
      for (const field of ["seed", "offset"]) {
        const text = JSON.stringify({ ...record, random: { ...record.random, [field]: word } });
        const digest = new CheckpointDigest(text, {});
        for (const tensor of tensors)
          digest.add({ name: tensor.name, dtype: tensor.dtype, shape: tensor.shape }, tensor.bytes);
        const metadata = { "lockstep.checkpoint": withDigest(text, digest.end()) };
        await writeSafetensors(path, { tensors, metadata }, async (writeTensor) => {
          for (const { name, bytes } of tensors) await writeTensor(name, bytes);
        });
        await expectUnchanged(FileError);
      }
    },
  );

  it("changes nothing if any tensor of the run was disposed of", async () => {
    const run = runOf(80);
    const { length } = run.tensors;
    run.end();
    expect(length).toBe(8);
    for (let i = 0; i < length; i++) await expectUnchanged(DisposedError, i);
  });

  it("is not written: a seed or offset beyond 64 bits is refused", async () => {
    const run = runOf(80);
    for (const invalidStep of [-1n, 2n ** 64n])
      for (const random of [
        { seed: invalidStep, offset: 0n },
        { seed: 0n, offset: invalidStep },
      ])
        await expect(saveCheckpoint(path, { ...run.state, random: random as RandomState })).rejects.toThrow(
          ArgumentError,
        );
    run.end();
  });
});
