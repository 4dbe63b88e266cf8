/**
 * `measureForm` finds the errors and bits of a conversion that is written, from files on a disk and from blobs, and counts the
 * scales of the written files.
 */
import { mkdir, mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import * as fc from "fast-check";
import { afterAll, beforeAll, expect, it } from "vitest";
import {
  type Checkpoint,
  CONVERSION_TARGETS,
  type ConversionTarget,
  convertCheckpoint,
  inspectCheckpoint,
  type MeasuredWeight,
  measureForm,
  openCheckpoint,
  openCheckpointBlobs,
} from "../../../../src/checkpoints/index.js";
import { FileError } from "../../../../src/errors.js";
import { draws, sampleCases } from "../../harness/draws.js";
import { useBackend } from "../../harness/suite.js";
import { TINY, tinyChoices, tinyModel, writeGguf, writeHub } from "../../models/tiny-model.js";

const backend = useBackend({ threads: 1 });

let folder: string;
let count = 0;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "lockstep-measure-"));
});
afterAll(() => rm(folder, { recursive: true }));
const newPath = (): string => join(folder, `${count++}`);

/** The files of a folder as a browser has them. */
async function blobsOf(path: string): Promise<ReadonlyMap<string, Blob>> {
  const names = await readdir(path);
  return new Map(
    await Promise.all(
      names.map(
        async (name) => [name, new Blob([Uint8Array.from(await readFile(join(path, name)))])] as const,
      ),
    ),
  );
}

type Outcome = { readonly weights: readonly MeasuredWeight[] } | { readonly error: string };

async function outcomeOf(checkpoint: Checkpoint, to: ConversionTarget, path: string): Promise<Outcome> {
  try {
    const weights: MeasuredWeight[] = [];
    for await (const weight of measureForm(checkpoint, { to, backend: backend() })) weights.push(weight);
    return { weights };
  } catch (error) {
    if (!(error instanceof FileError)) throw error;
    return { error: error.message.replaceAll(path, "folder") };
  } finally {
    await checkpoint.close();
  }
}

const scaleCount = ({ counts, others }: { readonly counts: readonly number[]; readonly others: number }) =>
  counts.reduce((sum, each) => sum + each, others);

/** Requires that both ways of opening a folder measure what a conversion of the folder writes. */
async function requireMeasured(path: string, to: ConversionTarget): Promise<Outcome> {
  const outcome = await outcomeOf(await openCheckpoint(path), to, path);
  expect(await outcomeOf(await openCheckpointBlobs(await blobsOf(path)), to, "folder")).toEqual(outcome);
  if ("error" in outcome) return outcome;
  const output = newPath();
  const openBackend = async () => backend();
  const { changes, skipped } = await convertCheckpoint(path, output, { to, openBackend });
  const converted = outcome.weights.filter(({ converted: form }) => form !== undefined);
  const errors = changes.map(({ name, noise, signal }) => [
    name,
    noise === 0 ? 0 : Math.sqrt(noise / signal),
  ]);
  expect(Object.fromEntries(converted.map(({ name, converted: form }) => [name, form?.error]))).toEqual(
    Object.fromEntries(errors),
  );
  expect(
    Object.fromEntries(outcome.weights.flatMap(({ name, reason }) => (reason ? [[name, reason]] : []))),
  ).toEqual(skipped);
  const { weights } = await inspectCheckpoint(output);
  for (const { name, bits, scales } of weights) {
    const form = converted.find((weight) => weight.name === name)?.converted;
    expect(form?.bits, name).toBeCloseTo(bits, 9);
    expect(form?.scales && scaleCount(form.scales), name).toBe(scales.count);
  }
  return outcome;
}

it("measures every form of a folder", async () => {
  const path = newPath();
  await writeHub(path, tinyModel(TINY), { type: "BF16" });
  for (const to of sampleCases(CONVERSION_TARGETS, 6)) await requireMeasured(path, to);
});

it("measures any model, as it is stored and after a conversion", async () => {
  await fc.assert(
    fc.asyncProperty(
      tinyChoices,
      fc.constantFrom(...CONVERSION_TARGETS),
      fc.constantFrom(...CONVERSION_TARGETS),
      fc.boolean(),
      async (choices, first, second, isGguf) => {
        const path = newPath();
        const model = tinyModel(choices);
        if (isGguf) await mkdir(path).then(() => writeGguf(join(path, "model.gguf"), model, "F16"));
        else await writeHub(path, model, { type: "F32" });
        await requireMeasured(path, second);
        const converted = newPath();
        await convertCheckpoint(path, converted, { to: first }).catch(() => undefined);
        if ((await readdir(folder)).includes(converted.slice(folder.length + 1)))
          await requireMeasured(converted, second);
      },
    ),
    { numRuns: draws(4) },
  );
});

it("a blob with a folder in its name is refused", async () => {
  const files = new Map([["sub/model.safetensors", new Blob([])]]);
  await expect(openCheckpointBlobs(files)).rejects.toThrow(
    /sub\/model.safetensors.*the name of a file, without its folder/,
  );
});
