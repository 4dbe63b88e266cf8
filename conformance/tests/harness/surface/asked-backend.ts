/**
 * A backend that accepts every operation and computes nothing unless `computes` is set. It records the calls, and returns
 * prepared answers.
 */
import type { Backend, Support } from "../../../../src/backends/backend.js";
import type { GemmArgs } from "../../../../src/backends/ops/gemm.js";
import type { OpArgs, OpName } from "../../../../src/backends/ops.js";
import type { GemmAlgorithm } from "../../../../src/formats/gemm-algorithm.js";
import { Tensor } from "../../../../src/tensor/tensor.js";

/** A recorded call: the operation and its arguments. */
export type RecordedCall = { readonly [K in OpName]: { readonly op: K; readonly args: OpArgs[K] } }[OpName];

/** The prepared answers to calls about products. */
export interface PreparedAnswers {
  readonly unverified?: string | undefined;
  readonly algorithm?: GemmAlgorithm | undefined;
}

export class RecordingBackend implements Backend {
  readonly name = "asked";
  readonly description = "does nothing";
  readonly threads = 1;
  readonly datapath: Backend["datapath"];
  readonly memory: Backend["memory"];
  readonly calls: RecordedCall[] = [];
  /** The address of each tensor at the time it was an argument. A view has the address of its base tensor. */
  readonly #addresses = new Map<unknown, number>();
  answers: PreparedAnswers = {};
  /** Whether operations are also computed. */
  computes = false;

  constructor(readonly inner: Backend) {
    this.datapath = inner.datapath;
    this.memory = inner.memory;
  }

  memoryUse(): ReturnType<Backend["memoryUse"]> {
    return this.inner.memoryUse();
  }

  trim(): void {}

  supports(): Support {
    const { unverified } = this.answers;
    return { ok: true, agrees: "bits", ...(unverified === undefined ? {} : { unverified }) };
  }

  run<K extends OpName>(op: K, args: OpArgs[K]): void {
    this.calls.push({ op, args } as RecordedCall);
    if (this.computes) this.inner.run(op, args);
    for (const argument of Object.values(args))
      if (argument instanceof Tensor) this.#addresses.set(argument, argument.address);
  }

  /** The recorded calls as plain data. A tensor is printed by its name in `values`, or else as "new" with dtype and shape. */
  describeCalls(values: Readonly<Record<string, unknown>>): readonly unknown[] {
    const names = new Map<unknown, string>();
    for (const [name, value] of Object.entries(values)) {
      if (value === undefined) continue;
      names.set(value, name);
      if (value instanceof Tensor) names.set(value.address, name);
    }
    const findName = (value: unknown): string | undefined =>
      names.get(value) ?? names.get(this.#addresses.get(value));
    return this.calls.map((call) => toPlainData(call, findName));
  }

  algorithmFor(args: GemmArgs): GemmAlgorithm | undefined {
    return args.algorithm ?? this.answers.algorithm;
  }

  async dispose(): Promise<void> {}
}

/** Arguments as plain data, without undefined values. */
function toPlainData(value: unknown, findName: (each: unknown) => string | undefined): unknown {
  const name = typeof value === "number" ? undefined : findName(value);
  if (name !== undefined) return name;
  if (value instanceof Tensor) return `new ${value.dtype} [${value.shape}]`;
  if (typeof value !== "object" || value === null || Array.isArray(value)) return value;
  const fields = Object.entries(value).filter(([, each]) => each !== undefined);
  return Object.fromEntries(fields.map(([key, each]) => [key, toPlainData(each, findName)]));
}
