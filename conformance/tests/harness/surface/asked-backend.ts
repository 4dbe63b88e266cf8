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
export type Asked = { readonly [K in OpName]: { readonly op: K; readonly args: OpArgs[K] } }[OpName];

/** The prepared answers to calls about products. */
export interface Answers {
  readonly unverified?: string | undefined;
  readonly algorithm?: GemmAlgorithm | undefined;
}

export class AskedBackend implements Backend {
  readonly name = "asked";
  readonly description = "does nothing";
  readonly threads = 1;
  readonly datapath: Backend["datapath"];
  readonly memory: Backend["memory"];
  readonly asked: Asked[] = [];
  /** The address of each tensor at the time it was an argument. A view has the address of its base tensor. */
  readonly #addresses = new Map<unknown, number>();
  answers: Answers = {};
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
    this.asked.push({ op, args } as Asked);
    if (this.computes) this.inner.run(op, args);
    for (const each of Object.values(args))
      if (each instanceof Tensor) this.#addresses.set(each, each.address);
  }

  /** The recorded calls in words. A tensor is printed by its name in `named`, or else as "new" with dtype and shape. */
  plainly(named: Readonly<Record<string, unknown>>): readonly unknown[] {
    const names = new Map<unknown, string>();
    for (const [name, each] of Object.entries(named)) {
      if (each === undefined) continue;
      names.set(each, name);
      if (each instanceof Tensor) names.set(each.address, name);
    }
    const nameOf = (each: unknown): string | undefined =>
      names.get(each) ?? names.get(this.#addresses.get(each));
    return this.asked.map((call) => plainly(call, nameOf));
  }

  algorithmFor(args: GemmArgs): GemmAlgorithm | undefined {
    return args.algorithm ?? this.answers.algorithm;
  }

  async dispose(): Promise<void> {}
}

/** Arguments as plain data, without undefined values. */
function plainly(value: unknown, nameOf: (each: unknown) => string | undefined): unknown {
  const name = typeof value === "number" ? undefined : nameOf(value);
  if (name !== undefined) return name;
  if (value instanceof Tensor) return `new ${value.dtype} [${value.shape}]`;
  if (typeof value !== "object" || value === null || Array.isArray(value)) return value;
  const fields = Object.entries(value).filter(([, each]) => each !== undefined);
  return Object.fromEntries(fields.map(([key, each]) => [key, plainly(each, nameOf)]));
}
