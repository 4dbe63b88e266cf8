/**
 * A fake of the addon that computes nothing: it returns configured algorithms in place of cuBLASLt and records all
 * calls.
 */

import { expect } from "vitest";
import type { Backend } from "../../../../src/backends/backend.js";
import type {
  Addon,
  DeviceFacts,
  DeviceHandle,
  NativeAlgorithm,
  NativeArgs,
} from "../../../../src/backends/cuda/addon.js";
import { gemm as lowering } from "../../../../src/backends/cuda/gemm/gemm.js";
import type { LoweringContext } from "../../../../src/backends/cuda/lowering.js";
import type { NativeCall } from "../../../../src/backends/cuda/native-calls.js";
import type { GemmArgs, GemmOperand, GemmOutDType } from "../../../../src/backends/ops/gemm.js";
import type { Gpu } from "../../../../src/formats/chips.js";
import { zeros } from "../../../../src/ops/create.js";
import type { WideDType } from "../../../../src/tensor/shape.js";

/** A fake algorithm with this id. Its opaque bytes (`words`) contain id, tile, splitK and scheme. */
export function fakeAlgorithm(id: number, fields: Partial<NativeAlgorithm> = {}): NativeAlgorithm {
  const { tile = 20, splitK = 1, scheme = 0 } = fields;
  const words = [id, tile, splitK, scheme, ...new Array<number>(12).fill(15)];
  const attributes = { stages: 0, swizzle: 0, customOption: 0, innerShape: 0, cluster: 0, workspace: 0 };
  return { ...attributes, id, tile, splitK, scheme, ...fields, words };
}

type Call = readonly [name: NativeCall, args: object];

/** The calls that enqueue work. */
export const LAUNCHES = [
  "gemm",
  "gemmOperand",
  "gemmPlain",
  "gemmFewRows",
  "gemmAlpha",
  "gemmEpilogue",
  "relayout",
] as const satisfies readonly NativeCall[];

const isLaunch = (name: NativeCall): boolean => LAUNCHES.some((launch) => launch === name);

export class FakeGpu {
  version = 130100;
  /** Whether a search restricted to algorithms without split-K finds one. */
  findsWithoutSplit = true;
  /** Whether algorithms can be configured by their attributes. */
  canConfigure = true;
  /** Products with fewer rows than this are not supported. */
  minimumRows = 1;
  /** The number of temporaries that were not freed. */
  liveTemporaries = 0;
  readonly context: LoweringContext;
  readonly #calls: Call[] = [];
  readonly #proposals: readonly NativeAlgorithm[];

  constructor(
    proposals: readonly NativeAlgorithm[],
    { name, major, minor }: Gpu = { name: "NVIDIA H200", major: 9, minor: 0 },
  ) {
    this.#proposals = proposals;
    const facts: DeviceFacts = { name, major, minor, multiprocessors: 1, uuid: "0", bytes: 0 };
    this.context = {
      addon: this.#addon(),
      device: {} as DeviceHandle,
      facts,
      withTemporary: (_bytes, body) => {
        this.liveTemporaries++;
        try {
          return body(2 ** 40 + this.liveTemporaries);
        } finally {
          this.liveTemporaries--;
        }
      },
    };
  }

  /** The arguments of every call with that name. */
  callsOf<K extends NativeCall>(name: K): readonly NativeArgs<K>[] {
    return this.#calls.flatMap(([callName, args]) => (callName === name ? [args as NativeArgs<K>] : []));
  }

  /** The names of the calls that enqueued work. */
  launches(): readonly NativeCall[] {
    return this.#calls.map(([name]) => name).filter(isLaunch);
  }

  #addon(): Addon {
    const record = (name: NativeCall) => (_device: DeviceHandle, args: object) => {
      this.#calls.push([name, args]);
    };
    let plans = 0;
    const launches = Object.fromEntries(
      ([...LAUNCHES, "gemmForget"] as const).map((name) => [name, record(name)]),
    );
    const addon: Partial<Addon> = {
      ...launches,
      versions: () => ({ runtime: 13000, driver: 13000, cublasLt: this.version }),
      gemmPlan: (device, args) => {
        record("gemmPlan")(device, args);
        return ++plans;
      },
      gemmCandidates: (device, args) => {
        record("gemmCandidates")(device, args);
        const { m, n } = this.callsOf("gemmPlan").at(-1) ?? { m: 0, n: 0 };
        const tooSmall = Math.min(m, n) < this.minimumRows;
        return tooSmall || (args.schemes === 0 && !this.findsWithoutSplit) ? [] : this.#proposals;
      },
      gemmConfigure: (device, args) => {
        record("gemmConfigure")(device, args);
        if (!this.canConfigure) return undefined;
        const { id, tile, splitK, scheme } = args;
        return fakeAlgorithm(id, { tile, splitK, scheme });
      },
      gemmChoose: (device, args) => {
        record("gemmChoose")(device, args);
        const words = Array.from({ length: 16 }, (_, i) => Number(args[`word${i}` as keyof typeof args]));
        // stored algorithms in these tests have fifteens in all words
        if (words.every((word) => word === 15)) return { ...fakeAlgorithm(66), words };
        const [id = 0, tile = 0, splitK = 0, scheme = 0] = words;
        return fakeAlgorithm(id, { tile, splitK, scheme });
      },
    };
    return addon as Addon;
  }
}

export interface FakeOptions {
  readonly batch?: number;
  readonly datapath?: GemmArgs["datapath"];
  readonly splitAccumulator?: boolean;
  readonly splitK?: GemmArgs["splitK"];
  readonly algorithm?: GemmArgs["algorithm"];
  readonly transposed?: boolean;
  /** Operands to use instead of tensors of zeros. */
  readonly operands?: Pick<GemmArgs, "x" | "w">;
  readonly out?: GemmOutDType;
  readonly bias?: WideDType;
  readonly preGelu?: WideDType;
  readonly c?: WideDType;
  readonly alpha?: number;
  readonly beta?: number;
}

/** The arguments of a product of zeros, [rows, depth] by [columns, depth]. */
export function gemmArgs(
  backend: Backend,
  format: "e4m3" | "e5m2" | "bf16" | "f32",
  [rows, columns, depth]: readonly [rows: number, columns: number, depth: number],
  options: FakeOptions = {},
): GemmArgs {
  const { out = "f32", bias, c, preGelu, transposed = false, operands, ...rest } = options;
  const items = rest.batch === undefined ? [] : [rest.batch];
  const operand = (lines: number): GemmOperand => ({
    data: zeros(backend, format, [...items, ...(transposed ? [depth, lines] : [lines, depth])]),
    transposed,
    traits: { format },
  });
  return {
    ...(operands ?? { x: operand(rows), w: operand(columns) }),
    datapath: "hopper",
    splitAccumulator: false,
    splitK: 1,
    alpha: 1,
    beta: 0,
    outScale: 1,
    ...rest,
    out: zeros(backend, out, [...items, rows, columns]),
    ...(bias ? { bias: zeros(backend, bias, [columns]) } : {}),
    ...(preGelu ? { preGelu: zeros(backend, preGelu, [rows, columns]) } : {}),
    ...(c ? { c: zeros(backend, c, [rows, columns]) } : {}),
  };
}

/** The arguments of `gemmArgs` after the backend. */
type GemmArgsParameters = Parameters<typeof gemmArgs> extends [unknown, ...infer R] ? R : never;

/** Runs products that the fake GPU supports, with operands on `backend`. */
export function productRunner(backend: () => Backend) {
  return (gpu: FakeGpu, ...parameters: GemmArgsParameters): ReturnType<typeof gemmArgs> => {
    const args = gemmArgs(backend(), ...parameters);
    expect(lowering.supports?.(args, gpu.context)).toMatchObject({ ok: true });
    lowering.run(gpu.context, args);
    return args;
  };
}
