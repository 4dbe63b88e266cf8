/** A backend that takes every operation and does none: it notes what it is asked for, and answers what it is told to. */
import type { Backend, Support } from "../../../../src/backends/backend.js";
import type { GemmArgs } from "../../../../src/backends/ops/gemm.js";
import type { OpArgs, OpName } from "../../../../src/backends/ops.js";
import type { GemmAlgorithm } from "../../../../src/formats/gemm-algorithm.js";
import { Tensor } from "../../../../src/tensor/tensor.js";

/** An operation, with the arguments that were given. */
export type Asked = { readonly [K in OpName]: { readonly op: K; readonly args: OpArgs[K] } }[OpName];

/** What it says of a product. */
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
  /** Where each tensor began when it was an argument: views of one tensor begin where it does. */
  readonly #addresses = new Map<unknown, number>();
  answers: Answers = {};

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
    for (const each of Object.values(args))
      if (each instanceof Tensor) this.#addresses.set(each, each.address);
  }

  /** What it was asked for, in words: tensors by the names of those given here, or as "new" with type and shape. */
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

/** Arguments as plain data, in which what is undefined is left out. */
function plainly(value: unknown, nameOf: (each: unknown) => string | undefined): unknown {
  const name = typeof value === "number" ? undefined : nameOf(value);
  if (name !== undefined) return name;
  if (value instanceof Tensor) return `new ${value.dtype} [${value.shape}]`;
  if (typeof value !== "object" || value === null || Array.isArray(value)) return value;
  const fields = Object.entries(value).filter(([, each]) => each !== undefined);
  return Object.fromEntries(fields.map(([key, each]) => [key, plainly(each, nameOf)]));
}
