/** What each operation writes, and of which types: so a backend can tell when there is nothing to do, and operations check it. */
import type { QuantizedCopy } from "../tensor/quantized.js";
import type { Tensor } from "../tensor/tensor.js";
import type { OpArgs, OpName } from "./ops.js";

/** The types that a tensor of an operation may have. */
export type TensorRule =
  /** f32, bf16 or f16. */
  | "wide"
  /** bf16 or f16. */
  | "half"
  | "f32"
  /** One f32. */
  | "scalar"
  | "u32"
  /** The type of `x`. */
  | "as x"
  /** Codes of the format `word`: of `x` what is in `out`, and of `out` what is in `x`. */
  | "codes"
  /** A wide type or FP8. */
  | "product"
  /** A copy of the quantizer's spec: data, scales and amax. */
  | "copy";

/** Arguments by name, with "?" behind those that may be left out. */
type Rules<A> = {
  readonly [N in keyof A & string as undefined extends A[N] ? `${N}?` : N]?: TensorRule;
};

interface Row<A> {
  readonly writes: Rules<A>;
  /** What it reads that an earlier operation has written: kernels trust its type. */
  readonly reads?: Rules<A>;
}

const out = { writes: { out: "wide" } } as const;
const dx = { writes: { dx: "wide" } } as const;
const asX = { writes: { out: "as x" } } as const;
const scalar = { writes: { out: "scalar" } } as const;
const copies = { "rowwise?": "copy", "columnwise?": "copy", "amaxRecord?": "scalar" } as const;
const statistics = { rstd: "f32", "mean?": "f32" } as const;

const TENSORS: { readonly [K in OpName]: Row<OpArgs[K]> } = {
  activation: out,
  activationBackward: out,
  activationQuantize: { writes: copies },
  adamw: { writes: { parameter: "f32", m: "f32", v: "f32", "copy?": "half" } },
  add: out,
  amax: scalar,
  biasGradQuantize: { writes: { ...copies, biasGrad: "wide" } },
  clipFactor: { writes: { norm: "f32", factor: "f32" } },
  columnSum: out,
  crossEntropy: { writes: { loss: "f32", maximum: "f32", total: "f32" } },
  crossEntropyBackward: { ...dx, reads: { grad: "f32", maximum: "f32", total: "f32" } },
  decode: { ...out, reads: { x: "codes" } },
  dequantize: out,
  embedding: out,
  embeddingBackward: out,
  encode: { writes: { out: "codes" } },
  gated: out,
  gatedBackward: out,
  gemm: { writes: { out: "product", "amax?": "scalar", "preGelu?": "wide" } },
  hadamard: asX,
  mse: { writes: { loss: "f32" } },
  mseBackward: { ...dx, reads: { grad: "f32" } },
  norm: { writes: { out: "wide", ...statistics } },
  normBackward: { writes: { dx: "wide", dgamma: "wide", "dbeta?": "wide" }, reads: statistics },
  normQuantize: { writes: { ...copies, ...statistics } },
  quantize: { writes: copies },
  relayout: asX,
  scaled: out,
  sgd: { writes: { parameter: "f32", "m?": "f32", "copy?": "half" } },
  softmax: out,
  softmaxBackward: dx,
  squareSum: scalar,
  swapAxes: asX,
  sweep: { writes: { out: "u32" } },
  transpose: asX,
  updateScales: { writes: { amaxHistory: "f32", scale: "f32" } },
};

/** One tensor of an operation. */
export interface TensorRow {
  readonly name: string;
  readonly rule: TensorRule;
  readonly optional: boolean;
  readonly written: boolean;
}

/** The tensors of every operation that have a rule; those that it writes first. */
export const TENSOR_ROWS: ReadonlyMap<OpName, readonly TensorRow[]> = new Map(
  Object.entries(TENSORS).map(([op, { writes, reads = {} }]: [string, Row<object>]) => [
    op as OpName,
    [...rowsOf(writes, true), ...rowsOf(reads, false)],
  ]),
);

function rowsOf(rules: Readonly<Record<string, TensorRule>>, written: boolean): readonly TensorRow[] {
  return Object.entries(rules).map(([key, rule]) => ({
    name: key.replace("?", ""),
    rule,
    optional: key.endsWith("?"),
    written,
  }));
}

/**
 * Whether everything that `op` writes has no elements. Kernels are not asked then: next to a size of zero another may be
 * larger than what they count in.
 */
export function writesNothing<K extends OpName>(op: K, args: OpArgs[K]): boolean {
  const rows = TENSOR_ROWS.get(op) as readonly TensorRow[];
  const given = args as object as Readonly<Record<string, unknown>>;
  for (let i = 0; i < rows.length; i++) {
    const { name, rule, written } = rows[i] as TensorRow;
    const each = given[name];
    if (!written || each === undefined) continue;
    if (rule === "copy" ? !isEmptyCopy(each as QuantizedCopy) : (each as Tensor).byteLength > 0) return false;
  }
  return true;
}

function isEmptyCopy({ scaleInv, data, amax }: QuantizedCopy): boolean {
  return scaleInv.byteLength === 0 && data.byteLength === 0 && !amax?.byteLength;
}
