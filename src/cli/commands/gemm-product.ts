/** One product by `gemm`'s options, from named tensors to bytes. */
import type { Backend } from "../../backends/backend.js";
import { GEMM_OUT_DTYPES } from "../../backends/gemm-args.js";
import { FileError, LockstepError } from "../../errors.js";
import { isSquare } from "../../formats/block.js";
import { DATAPATH_FAMILIES, type DatapathFamily } from "../../formats/datapath.js";
import { fileDType } from "../../io/dtypes.js";
import type { TensorPlan } from "../../io/header.js";
import { Holder } from "../../io/holder.js";
import { type GemmOptions, gemm as multiplyTensors } from "../../ops/gemm/gemm.js";
import type { GemmPlan } from "../../ops/gemm/plan.js";
import { Scope } from "../../tensor/scope.js";
import { elementCount } from "../../tensor/shape.js";
import { bytesOf } from "../bytes.js";
import {
  choice,
  flag,
  float32,
  integer,
  oneOf,
  optional,
  positiveFloat32,
  type Values,
  value,
} from "../options.js";
import { type Operand, readOperand, type Sources } from "./gemm-operands.js";

export const GEMM_OPTIONS = {
  datapath: optional<DatapathFamily>({
    placeholder: DATAPATH_FAMILIES.join("|"),
    help: "how dot products accumulate: exactly, in f32, or as a generation of tensor cores (default: the backend's, hopper on the reference)",
    parse: oneOf(DATAPATH_FAMILIES),
  }),
  "split-accumulator": flag("FP8: add partial sums in f32 every 128 along K (implied by block scales)"),
  "split-k": value({
    placeholder: "N",
    help: "parts K is cut in",
    parse: integer(1),
    fallback: 1,
    shown: "1",
  }),
  "out-dtype": choice(GEMM_OUT_DTYPES, {
    help: "type of d; for an 8-bit type d.amax is written as well",
    fallback: "f32",
  }),
  "out-scale": value({
    placeholder: "X",
    help: "factor of an 8-bit d",
    parse: positiveFloat32,
    fallback: 1,
    shown: "1",
  }),
  alpha: value({ placeholder: "X", help: "factor of the product", parse: float32, fallback: 1, shown: "1" }),
  beta: optional({ placeholder: "X", help: "adds X times tensor c, [M,N]", parse: float32 }),
  bias: flag("adds tensor bias, [N], to every row"),
} as const;

type GemmSettings = Values<typeof GEMM_OPTIONS>;

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
  /** Why the bits of d are no promise. */
  readonly unverified?: string;
}

/** Computes d, and d.amax for an 8-bit output. Throws `LockstepError` that names what does not fit. */
export async function multiply(backend: Backend, request: ProductRequest): Promise<Product> {
  const { sources, settings, prefix = "" } = request;
  using holder = new Holder();
  const a = await readOperand(backend, sources, `${prefix}a`, holder);
  const b = await readOperand(backend, sources, `${prefix}b`, holder);
  requirePair(prefix, a, b);
  const [rows, columns] = [a.matrix[0], b.matrix[0]];
  const addends: Pick<GemmOptions, "c" | "beta" | "bias"> = {
    ...(settings.beta === undefined
      ? {}
      : {
          beta: settings.beta,
          c: holder.hold(
            await sources.readWide(backend, `${prefix}c`, [rows, columns], "--beta multiplies it"),
          ),
        }),
    ...(settings.bias
      ? { bias: holder.hold(await sources.readWide(backend, `${prefix}bias`, [columns], "--bias adds it")) }
      : {}),
  };
  try {
    return compute(request, a, b, addends);
  } catch (error) {
    if (!(error instanceof LockstepError)) throw error;
    const names = `tensors "${prefix}a" and "${prefix}b" are ${a.what} and ${b.what}`;
    throw new LockstepError(error.code, `${error.message}; ${names}`, { cause: error });
  }
}

/** A product's rules that go by what the operands are called. */
function requirePair(prefix: string, a: Operand, b: Operand): void {
  if (a.matrix[1] !== b.matrix[1]) {
    throw new FileError(
      `tensors "${prefix}a" and "${prefix}b": are ${a.what} and ${b.what}; their last dimensions must be equal`,
    );
  }
  if (a.tile === undefined || !isSquare(a.tile)) return;
  throw new FileError(
    `tensor "${prefix}a": is ${a.what}, scaled per 128x128; only "${prefix}b" may be, with "${prefix}a" scaled per 1x128`,
  );
}

/** The command's a is the operation's B, the input; its b is A, the weight. */
function compute(
  { settings, plan, onStart }: ProductRequest,
  a: Operand,
  b: Operand,
  addends: Partial<GemmOptions>,
): Product {
  const shape = [a.matrix[0], b.matrix[0]];
  using _scope = new Scope();
  const {
    out,
    amax,
    plan: used,
    unverified,
  } = multiplyTensors({
    a: b.input,
    b: a.input,
    ...addends,
    alpha: settings.alpha,
    outDtype: settings["out-dtype"],
    outScale: settings["out-scale"],
    ...(plan ? { plan } : planSettings(settings)),
    progress: onStart?.(elementCount([...shape, a.matrix[1]])),
  });
  const d = { name: "d", dtype: fileDType(out.dtype), shape, bytes: bytesOf(out.dataSync()) };
  const record = amax
    ? [{ name: "d.amax", dtype: fileDType("f32"), shape: [1], bytes: bytesOf(amax.dataSync()) }]
    : [];
  const product = { tensors: [d, ...record], plan: used };
  return unverified === undefined ? product : { ...product, unverified };
}

function planSettings(
  settings: GemmSettings,
): Pick<GemmOptions, "datapath" | "useSplitAccumulator" | "splitK"> {
  const { datapath } = settings;
  const fields = { useSplitAccumulator: settings["split-accumulator"], splitK: settings["split-k"] };
  return datapath ? { datapath, ...fields } : fields;
}
