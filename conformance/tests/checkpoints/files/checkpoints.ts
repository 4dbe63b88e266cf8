/** Checkpoints for tests: files that libraries wrote, copies of them with a planted fault, and generated ones. */
import { cpSync, existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Backend } from "../../../../src/backends/backend.js";
import type { WeightChanges } from "../../../../src/checkpoints/convert/changes/weight-changes.js";
import { planConversion } from "../../../../src/checkpoints/convert/plan/plan.js";
import type { ConversionPlan } from "../../../../src/checkpoints/convert/plan/steps.js";
import { parseTarget } from "../../../../src/checkpoints/convert/targets/named.js";
import { writeConversion } from "../../../../src/checkpoints/convert/write.js";
import { openGgufFile } from "../../../../src/checkpoints/gguf/open.js";
import { inspectFiles } from "../../../../src/checkpoints/inspect.js";
import type { Finding } from "../../../../src/checkpoints/judge/findings.js";
import type { CheckpointReport } from "../../../../src/checkpoints/report.js";
import { dequantizedRows } from "../../../../src/checkpoints/stored/dequantize.js";
import { openCheckpointFiles } from "../../../../src/checkpoints/stored/open.js";
import { surveyFiles } from "../../../../src/checkpoints/survey.js";
import type { FileDType } from "../../../../src/io/dtypes.js";
import type { Metadata } from "../../../../src/io/header/header.js";
import { SafetensorsFile } from "../../../../src/io/safetensors.js";
import { writeSafetensors } from "../../../../src/io/safetensors-writer.js";

/** The folder of files that libraries wrote. */
export const VECTORS = new URL("../../../vectors/checkpoints/", import.meta.url).pathname;

/** The folder of files that gguf-py wrote. */
export const GGUF = new URL("../../../vectors/gguf/", import.meta.url).pathname;

/** The checkpoints that libraries quantized. */
export const FIXTURES = readdirSync(VECTORS).filter((name) => name !== "original" && !name.includes("."));

/** A tensor in memory. */
export interface StoredTensor {
  dtype: FileDType;
  shape: readonly number[];
  bytes: Uint8Array;
}

/** The contents of a checkpoint in one file. */
export interface Contents {
  readonly tensors: Map<string, StoredTensor>;
  readonly metadata: Metadata;
  /** The JSON files of the same folder, by name. */
  readonly json: Map<string, Record<string, unknown>>;
}

/** Reads a checkpoint of one file; blocks of a GGUF file as codes and scales. */
export async function readContents(folder: string): Promise<Contents> {
  const gguf = join(folder, "model.gguf");
  const file = existsSync(gguf)
    ? await openGgufFile(gguf)
    : await SafetensorsFile.open(join(folder, "model.safetensors"));
  const tensors = new Map<string, StoredTensor>();
  for (const entry of file.tensors.values())
    tensors.set(entry.name, { dtype: entry.dtype, shape: entry.shape, bytes: await file.read(entry) });
  await file.close();
  const names = readdirSync(folder).filter((name) => name.endsWith(".json"));
  const json = new Map(
    names.map((name) => [name, JSON.parse(readFileSync(join(folder, name), "utf8"))] as const),
  );
  return { tensors, metadata: file.metadata, json };
}

/** Writes a checkpoint of one file into a folder. */
export async function writeContents(folder: string, { tensors, metadata, json }: Contents): Promise<void> {
  const plan = [...tensors].map(([name, { dtype, shape }]) => ({ name, dtype, shape }));
  await writeSafetensors(
    join(folder, "model.safetensors"),
    { tensors: plan, metadata },
    async (writeTensor) => {
      for (const [name, { bytes }] of tensors) await writeTensor(name, bytes);
    },
  );
  for (const [name, value] of json) writeFileSync(join(folder, name), JSON.stringify(value));
}

/** Calls `body` with an empty folder, which is removed afterwards. */
export async function inFolder<T>(body: (folder: string) => Promise<T>): Promise<T> {
  const folder = mkdtempSync(join(tmpdir(), "lockstep-checkpoint-"));
  try {
    return await body(folder);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** The report on a checkpoint. */
export async function reportOf(path: string, original?: string): Promise<CheckpointReport> {
  const checkpoint = await openCheckpointFiles(path);
  const originalFiles = original === undefined ? undefined : await openCheckpointFiles(original);
  try {
    return await inspectFiles(checkpoint, await surveyFiles(checkpoint), { original: originalFiles });
  } finally {
    await checkpoint.close();
    await originalFiles?.close();
  }
}

/** The report of a conversion, and the way in which it converted each weight. */
export interface ConversionReport {
  readonly plan: ConversionPlan;
  readonly changes: readonly WeightChanges[];
}

/** Converts the checkpoint in a folder into another folder. */
export async function convertTo(
  backend: Backend,
  input: string,
  output: string,
  targetName: string,
  tensors?: readonly string[],
): Promise<ConversionReport> {
  const checkpoint = await openCheckpointFiles(input);
  try {
    const target = parseTarget(targetName);
    const plan = await planConversion(checkpoint, {
      target,
      tensors,
      backend: () => Promise.resolve(backend),
    });
    const changes = await writeConversion(checkpoint, plan, output);
    return { plan, changes };
  } finally {
    await checkpoint.close();
  }
}

/** The exact values of all quantized weights of a checkpoint, by name. */
export async function valuesIn(path: string): Promise<Map<string, Float64Array>> {
  const checkpoint = await openCheckpointFiles(path);
  const valuesByName = new Map<string, Float64Array>();
  for (const weight of (await surveyFiles(checkpoint)).weights) {
    const values = new Float64Array(weight.shape.reduce((product, size) => product * size, 1));
    for await (const rows of dequantizedRows(weight)) values.set(rows.values, rows.at);
    valuesByName.set(weight.name, values);
  }
  await checkpoint.close();
  return valuesByName;
}

/** The elements of matrices [rows, columns] in the order of [columns, rows]. */
export function transpose<T>(elements: ArrayLike<T>, rows: number, columns: number): T[] {
  const size = rows * columns;
  return Array.from({ length: elements.length }, (_, index) => {
    const [indexInMatrix, matrixStart] = [index % size, index - (index % size)];
    return elements[matrixStart + (indexInMatrix % rows) * columns + Math.floor(indexInMatrix / rows)] as T;
  });
}

/** The report on contents. */
export async function reportOfContents(contents: Contents, original?: string): Promise<CheckpointReport> {
  return inFolder(async (folder) => {
    await writeContents(folder, contents);
    return reportOf(folder, original);
  });
}

/** The errors among findings. */
export function errorsIn(findings: readonly Finding[]): readonly Finding[] {
  return findings.filter(({ severity }) => severity === "error");
}

/** A copy of a fixture in a folder of its own. */
export function copyFixture(name: string, folder: string): void {
  cpSync(join(VECTORS, name), folder, { recursive: true });
}
