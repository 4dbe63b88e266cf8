/** Runs the command line inside the test process, on files in a temporary folder. */
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect } from "vitest";
import { COMMANDS, runCli } from "../../../src/cli/main.js";
import { NO_BINARY } from "../../../src/cli/session.js";
import type { Metadata, TensorPlan } from "../../../src/io/header/header.js";
import { SafetensorsFile } from "../../../src/io/safetensors.js";
import { writeSafetensors } from "../../../src/io/safetensors-writer.js";
import { useLiveAtClose } from "./live-at-close.js";

/** The output and the exit status of a run. */
export interface CliRun {
  readonly status: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** A tensor and its bytes. */
export interface FileTensor extends TensorPlan {
  readonly bytes: Uint8Array;
}

/** The tensors and metadata of a safetensors file. */
export interface FileContents {
  readonly tensors: Readonly<Record<string, FileTensor>>;
  readonly metadata: Metadata;
}

/** Whether a command has the option --threads. */
export function takesThreads(command: string | undefined): boolean {
  return COMMANDS.some(({ name, options }) => name === command && "threads" in options);
}

/** A workspace for each test of a file. A command that leaves memory allocated fails its test. */
export function useWorkspace(): Workspace {
  const workspace = new Workspace();
  const liveAtClose = useLiveAtClose();
  beforeEach(() => workspace.open());
  afterEach(() => {
    workspace.close();
    expect(liveAtClose.splice(0).filter((bytes) => bytes > 0)).toEqual([]);
  });
  return workspace;
}

/** A temporary folder, initially empty. */
class Workspace {
  #folder = "";

  open(): void {
    this.#folder = mkdtempSync(join(tmpdir(), "lockstep-cli-"));
  }

  close(): void {
    rmSync(this.#folder, { recursive: true, force: true });
  }

  path(name: string): string {
    return join(this.#folder, name);
  }

  /** The names of the files in the folder, hidden files included. */
  get names(): readonly string[] {
    return readdirSync(this.#folder).toSorted();
  }

  /** Runs a command. Words that begin with "@" are files in this folder. A command with threads uses one by default. */
  async run(...argv: readonly string[]): Promise<CliRun> {
    const outputs = { stdout: "", stderr: "" };
    const sink = (name: keyof typeof outputs) => ({
      write: (chunk: string) => {
        outputs[name] += chunk;
      },
    });
    const args = argv.map((word) => (word.startsWith("@") ? this.path(word.slice(1)) : word));
    const [command, ...rest] = args;
    const addsThreads = takesThreads(command) && args.length > 1 && !args.includes("--threads");
    const threads = addsThreads ? ["--threads", "1"] : [];
    const status = await runCli(command === undefined ? [] : [command, ...threads, ...rest], {
      stdout: sink("stdout"),
      stderr: sink("stderr"),
      binary: NO_BINARY,
    });
    return { status, ...outputs };
  }

  /** As `run`, but throws the output if the status is not 0. */
  async succeed(...argv: readonly string[]): Promise<string> {
    const { status, stdout, stderr } = await this.run(...argv);
    if (status !== 0) throw new Error(`${argv.join(" ")}: exit status ${status}: ${stderr}${stdout}`);
    return stdout;
  }

  async write(name: string, tensors: readonly FileTensor[], metadata: Metadata = {}): Promise<void> {
    await writeSafetensors(this.path(name), { tensors, metadata }, async (put) => {
      for (const tensor of tensors) await put(tensor.name, tensor.bytes);
    });
  }

  async read(name: string): Promise<FileContents> {
    const file = await SafetensorsFile.open(this.path(name));
    try {
      const tensors: Record<string, FileTensor> = {};
      for (const entry of file.tensors.values()) {
        const { dtype, shape } = entry;
        tensors[entry.name] = { name: entry.name, dtype, shape, bytes: await file.read(entry) };
      }
      return { tensors, metadata: file.metadata };
    } finally {
      await file.close();
    }
  }
}

/** An F32 tensor with these values. */
export function f32(name: string, shape: readonly number[], values: ArrayLike<number>): FileTensor {
  return { name, dtype: "F32", shape, bytes: new Uint8Array(Float32Array.from(values).buffer) };
}

/** A tensor with these bytes. */
export function raw(
  name: string,
  dtype: TensorPlan["dtype"],
  shape: readonly number[],
  bytes: ArrayLike<number>,
): FileTensor {
  return { name, dtype, shape, bytes: Uint8Array.from(bytes) };
}

/** Reproducible values that no format represents exactly, with magnitudes from 2^-8 to 2^8. */
export function ramp(count: number, seed = 1): Float32Array {
  return Float32Array.from({ length: count }, (_, i) => {
    const word = Math.imul(i + seed, 0x9e3779b1) >>> 0;
    return (word & 1 ? -1 : 1) * (1 + (word >>> 9) / 2 ** 23) * 2 ** ((word % 17) - 8);
  });
}

/** The values of an F32 tensor. */
export function floats({ bytes }: FileTensor): Float32Array {
  return new Float32Array(bytes.buffer, bytes.byteOffset, bytes.byteLength / 4);
}
