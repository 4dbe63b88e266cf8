/** The product of `lockstep gemm`: reads tensors from files, and returns the bytes of the result. */
import type { Backend } from "../../backends/backend.js";
import { GEMM_OUT_DTYPES } from "../../backends/ops/gemm.js";
import { FileError, LockstepError } from "../../errors.js";
import { isSquare } from "../../formats/block.js";
import { DATAPATH_FAMILIES, type DatapathFamily } from "../../formats/datapath.js";
import { fileDType } from "../../io/dtypes.js";
import type { TensorPlan } from "../../io/header/header.js";
import { Holder } from "../../io/holder.js";
import { gemm as multiplyTensors } from "../../ops/gemm/gemm.js";
import type { InputAndWeight } from "../../ops/gemm/named-operands.js";
import type { GemmInput } from "../../ops/gemm/operand.js";
import type { GemmSettings } from "../../ops/gemm/options.js";
import type { GemmPlan } from "../../ops/gemm/plan.js";
import { asBytes } from "../../tensor/data.js";
import { Scope } from "../../tensor/scope.js";
import { elementCount } from "../../tensor/shape.js";
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
  withMeanings,
} from "../options.js";
import { type Operand, operandNames, readOperand, type Sources } from "./gemm-operands.js";

export const GEMM_OPTIONS = {
  datapath: optional<DatapathFamily>({
    placeholder: DATAPATH_FAMILIES.join("|"),
    help: withMeanings(
      "how dot products accumulate (default: the backend's; hopper for the reference; docs/datapath.md)",
      {
        exact: "rounded once",
        fp32: "in a plain loop of f32",
        ada: "as a published model of Ada's tensor cores",
        hopper: "as an H100 and an H200",
        blackwell: "as a published model of Blackwell's tensor cores",
      } satisfies Readonly<Record<DatapathFamily, string>>,
    ),
    parse: oneOf(DATAPATH_FAMILIES),
  }),
  "split-accumulator": flag("FP8: add partial sums of 128 elements along K in f32 (implied by block scales)"),
  "split-k": value({
    placeholder: "N",
    help: "number of splits of K (split-K)",
    parse: integer(1),
    fallback: 1,
    shown: "1",
  }),
  "out-dtype": choice(GEMM_OUT_DTYPES, {
    help: "dtype of the result d",
    meanings: {
      f32: "the sums as they are",
      bf16: "rounded to nearest even",
      f16: "the same",
      e4m3: "times --out-scale, rounded, saturating, and d.amax beside it",
      e5m2: "the same",
    },
    fallback: "f32",
  }),
  "out-scale": value({
    placeholder: "X",
    help: "factor by which an 8-bit d is multiplied before it is rounded",
    parse: positiveFloat32,
    fallback: 1,
    shown: "1",
  }),
  alpha: value({ placeholder: "X", help: "factor of the product", parse: float32, fallback: 1, shown: "1" }),
  beta: optional({ placeholder: "X", help: "add X times the tensor c, [M,N]", parse: float32 }),
  bias: flag("add the tensor bias, [N], to every row"),
} as const;

type ProductValues = Values<typeof GEMM_OPTIONS>;

/** A product to compute. `prefix` precedes the names of all tensors: x and w (or a and b), c and bias. */
export interface ProductRequest {
  readonly sources: Sources;
  readonly settings: ProductValues;
  readonly plan?: GemmPlan | undefined;
  readonly prefix?: string;
  /**
   * Called before the product with the number of multiply-adds. The returned function is called with the fraction of the
   * completed work, from 0 to 1.
   */
  readonly onStart?: (multiplyAdds: number) => (share: number) => void;
}

/** The tensors of the result with their bytes, and the plan by which they were computed. */
export interface Product {
  readonly tensors: readonly (TensorPlan & { readonly bytes: Uint8Array })[];
  readonly plan: GemmPlan;
  /** The reason why the bits of d are unverified. Absent if they are verified. */
  readonly unverified?: string;
}

/** The options of `gemm` after all tensors are read, without the outputs. */
export type ReadProduct = InputAndWeight<GemmInput> &
  Pick<
    GemmSettings,
    | "c"
    | "beta"
    | "bias"
    | "alpha"
    | "outDtype"
    | "outScale"
    | "plan"
    | "datapath"
    | "useSplitAccumulator"
    | "splitK"
  >;

/** Computes d and, for an 8-bit output, d.amax. Throws `LockstepError`, whose message names the operands. */
export function multiply(backend: Backend, request: ProductRequest): Promise<Product> {
  return withProduct(backend, request, (product, matrix) => compute(product, matrix, request.onStart));
}

/**
 * Reads the tensors of a product, calls `body` with its options and [M, N, K], and frees them. Throws `LockstepError`, whose
 * message names the operands.
 */
export async function withProduct<T>(
  backend: Backend,
  request: Omit<ProductRequest, "onStart">,
  body: (product: ReadProduct, matrix: readonly [number, number, number]) => T,
): Promise<T> {
  const { sources, settings, plan, prefix = "" } = request;
  using holder = new Holder();
  const [input, weight] = operandNames(sources, prefix);
  const x = await readOperand(backend, sources, input, holder);
  const w = await readOperand(backend, sources, weight, holder);
  requirePair(x, w);
  const [rows, columns] = [x.matrix[0], w.matrix[0]];
  const addends: Pick<GemmSettings, "c" | "beta" | "bias"> = {
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
  const product = {
    x: x.input,
    w: w.input,
    ...addends,
    alpha: settings.alpha,
    outDtype: settings["out-dtype"],
    outScale: settings["out-scale"],
    ...(plan ? { plan } : planSettings(settings)),
  };
  try {
    return body(product, [rows, columns, x.matrix[1]]);
  } catch (error) {
    if (!(error instanceof LockstepError)) throw error;
    const names = `tensors "${x.name}" and "${w.name}" are ${x.what} and ${w.what}`;
    throw new LockstepError(error.code, `${error.message}; ${names}`, { cause: error });
  }
}

/** Throws `FileError` for operands that do not fit each other. The message contains their names in the file. */
function requirePair(x: Operand, w: Operand): void {
  if (x.matrix[1] !== w.matrix[1]) {
    throw new FileError(
      `tensors "${x.name}" and "${w.name}": are ${x.what} and ${w.what}; their last dimensions must be equal`,
    );
  }
  if (x.tile === undefined || !isSquare(x.tile)) return;
  throw new FileError(
    `tensor "${x.name}": is ${x.what}, scaled per 128x128; only "${w.name}" may be, with "${x.name}" scaled per 1x128`,
  );
}

function compute(
  options: ReadProduct,
  matrix: readonly [number, number, number],
  onStart: ProductRequest["onStart"],
): Product {
  const shape = matrix.slice(0, 2);
  using _scope = new Scope();
  const progress = onStart?.(elementCount(matrix));
  const { out, amax, plan: planUsed, unverified } = multiplyTensors({ ...options, progress });
  const d = { name: "d", dtype: fileDType(out.dtype), shape, bytes: asBytes(out.dataSync()) };
  const record = amax
    ? [{ name: "d.amax", dtype: fileDType("f32"), shape: [1], bytes: asBytes(amax.dataSync()) }]
    : [];
  const product = { tensors: [d, ...record], plan: planUsed };
  return unverified === undefined ? product : { ...product, unverified };
}

function planSettings(
  settings: ProductValues,
): Pick<GemmSettings, "datapath" | "useSplitAccumulator" | "splitK"> {
  const { datapath } = settings;
  const fields = { useSplitAccumulator: settings["split-accumulator"], splitK: settings["split-k"] };
  return datapath ? { datapath, ...fields } : fields;
}
