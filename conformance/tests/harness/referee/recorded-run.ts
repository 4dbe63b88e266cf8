/** Recorded runs in memory: reads them from conformance/vectors/runs, changes them, and writes them to a folder. */
import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { SafetensorsFile } from "../../../../src/io/safetensors.js";
import { writeSafetensors } from "../../../../src/io/safetensors-writer.js";
import type { Value } from "../../../../src/referee/value.js";
import type { FileTensor } from "../cli.js";

/** A tensor of an operation, as a log has it. */
export interface LoggedTensor {
  dtype: string;
  shape: readonly number[];
  sha256?: string;
  digest?: string;
  tensor?: string;
}

/** The field `lockstep` of an entry of a log. */
export interface LoggedOperation {
  schema: string;
  args: unknown[];
  kwargs: Record<string, unknown>;
  outputs: LoggedTensor[];
}

/** The folder of a run that PyTorch recorded. */
export function runPath(name: string): string {
  return new URL(`../../../vectors/runs/${name}`, import.meta.url).pathname;
}

/** A recorded run in memory, which a test changes and writes to a folder. */
export class RecordedRun {
  private constructor(
    readonly operations: LoggedOperation[],
    readonly tensors: Map<string, FileTensor>,
    readonly contract: Record<string, unknown>,
  ) {}

  static async read(name: string): Promise<RecordedRun> {
    const readJson = (file: string): unknown => JSON.parse(readFileSync(`${runPath(name)}/${file}`, "utf8"));
    const { logs } = readJson("log.json") as { logs: { lockstep: LoggedOperation }[] };
    const file = await SafetensorsFile.open(`${runPath(name)}/tensors.safetensors`);
    const tensors = new Map<string, FileTensor>();
    try {
      for (const entry of file.tensors.values())
        tensors.set(entry.name, { ...entry, bytes: await file.read(entry) });
    } finally {
      await file.close();
    }
    return new RecordedRun(
      logs.map(({ lockstep }) => lockstep),
      tensors,
      readJson("contract.json") as Record<string, unknown>,
    );
  }

  tensorBytes({ tensor = "" }: LoggedTensor): Uint8Array {
    return this.tensors.get(tensor)?.bytes ?? new Uint8Array();
  }

  /** Adds a tensor and returns its entry in a log, as `record` writes it. */
  add({ dtype, shape, bytes }: Value): LoggedTensor {
    const sha256 = createHash("sha256").update(bytes).digest("hex");
    const tensor = sha256.slice(0, 32);
    if (!this.tensors.has(tensor)) this.tensors.set(tensor, { name: tensor, dtype, shape, bytes });
    return { dtype, shape, sha256, tensor };
  }

  async write(folder: string): Promise<void> {
    mkdirSync(folder, { recursive: true });
    const logs = this.operations.map((lockstep) => ({ type: "op", call_depth: 0, lockstep }));
    const log = { format: "torch.utils._debug_mode.DebugMode.logs", version: 1, logs };
    writeFileSync(`${folder}/log.json`, JSON.stringify(log));
    writeFileSync(`${folder}/contract.json`, JSON.stringify(this.contract));
    const tensors = [...this.tensors.values()].map(({ name, dtype, shape, bytes }) => ({
      name,
      dtype,
      shape,
      bytes,
    }));
    await writeSafetensors(`${folder}/tensors.safetensors`, { tensors }, async (put) => {
      for (const { name, bytes } of tensors) await put(name, bytes);
    });
  }
}
