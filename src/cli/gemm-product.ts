/** One product by `gemm`'s options, from named tensors to bytes. */
import type { Backend } from "../backends/backend.js";
import type { GemmOutDType } from "../backends/gemm-args.js";
import { ArgumentError, FileError, LockstepError } from "../errors.js";
import type { DatapathFamily } from "../formats/datapath.js";
import { fileDType } from "../io/dtypes.js";
import type { TensorPlan } from "../io/header.js";
import { type GemmPlan, gemm as multiplyTensors } from "../ops/gemm.js";
import { Scope } from "../tensor/scope.js";
import { disposeOperand, type Operand, readOperand, type Sources } from "./gemm-operands.js";
import { choice, flag, float32, integer, oneOf, optional, positiveFloat32, type Values, value } from "./options.js";

const DATAPATH_FAMILIES = ["exact", "fp32", "ada", "hopper", "blackwell"] as const satisfies readonly DatapathFamily[];
const OUT_DTYPES = ["f32", "bf16", "f16", "e4m3", "e5m2"] as const satisfies readonly GemmOutDType[];

export const GEMM_OPTIONS = {
  datapath: optional<DatapathFamily>({
    placeholder: DATAPATH_FAMILIES.join("|"),
    help: "how dot products accumulate: exactly, in f32, or as a generation of tensor cores (default: the backend's, hopper on the reference)",
    parse: oneOf(DATAPATH_FAMILIES),
  }),
  "split-accumulator": flag("FP8: add partial sums in f32 every 128 along K (implied by block scales)"),
  "split-k": value({ placeholder: "N", help: "parts K is cut in", parse: integer(1), fallback: 1, shown: "1" }),
  "out-dtype": choice(OUT_DTYPES, { help: "type of d; for an 8-bit type d.amax is written as well", fallback: "f32" }),
  "out-scale": value({ placeholder: "X", help: "factor of an 8-bit d", parse: positiveFloat32, fallback: 1, shown: "1" }),
  alpha: value({ placeholder: "X", help: "factor of the product", parse: float32, fallback: 1, shown: "1" }),
  beta: optional({ placeholder: "X", help: "adds X times tensor c, [M,N]", parse: float32 }),
  bias: flag("adds tensor bias, [N], to every row"),
} as const;

export type GemmSettings = Values<typeof GEMM_OPTIONS>;

/** A product to compute: tensors are named with `prefix` before a, b, c and bias. */
export interface ProductRequest {
  readonly sources: Sources;
  readonly settings: GemmSettings;
  readonly plan?: GemmPlan | undefined;
  readonly prefix?: string;
  /** Told of the share of the work done, and first of all of the multiply-adds there are. */
  readonly onStart?: (multiplyAdds: number) => (share: number) => void;
}

/** Tensors with their bytes, and the plan they were computed by. */
export interface Product {
  readonly tensors: readonly (TensorPlan & { readonly bytes: Uint8Array })[];
  readonly plan: GemmPlan;
}

/** Computes d, and d.amax for an 8-bit output. Throws `LockstepError` that names what does not fit. */
export async function multiply(backend: Backend, request: ProductRequest): Promise<Product> {
  const { sources, prefix = "" } = request;
  const a = await readOperand(backend, sources, `${prefix}a`);
  try {
    const b = await readOperand(backend, sources, `${prefix}b`);
    try {
      requirePair(prefix, a, b);
      return await withAddends(backend, request, a, b);
    } finally {
      disposeOperand(b);
    }
  } finally {
    disposeOperand(a);
  }
}

function requirePair(prefix: string, a: Operand, b: Operand): void {
  if (a.matrix[1] !== b.matrix[1]) {
    throw new FileError(`tensors "${prefix}a" and "${prefix}b": are ${a.what} and ${b.what}; their last dimensions must be equal`);
  }
  if (a.tile !== "128x128") return;
  throw new FileError(
    `tensor "${prefix}a": is ${a.what}, scaled per 128x128; only "${prefix}b" may be, with "${prefix}a" scaled per 1x128`,
  );
}

async function withAddends(backend: Backend, request: ProductRequest, a: Operand, b: Operand): Promise<Product> {
  const { sources, settings, prefix = "" } = request;
  const [rows, columns] = [a.matrix[0], b.matrix[0]];
  const { beta } = settings;
  const c = beta === undefined ? undefined : await sources.readWide(backend, `${prefix}c`, [rows, columns], "--beta multiplies it");
  try {
    const bias = settings.bias ? await sources.readWide(backend, `${prefix}bias`, [columns], "--bias adds it") : undefined;
    try {
      return compute(backend, request, { a, b, ...(c ? { c } : {}), ...(bias ? { bias } : {}) });
    } finally {
      bias?.dispose();
    }
  } finally {
    c?.dispose();
  }
}
