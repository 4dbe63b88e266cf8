/**
 * The tensors of each operation: which it writes and which it only reads, their dtypes, and which it may write in place.
 * Backends use the table to detect empty work; operations use it to check dtypes and overlaps.
 */
import type { QuantizedCopy } from "../tensor/quantized.js";
import type { Tensor } from "../tensor/tensor.js";
import type { OpArgs, OpName } from "./ops.js";

/** The dtypes that a tensor of an operation may have. */
export type TensorRule =
  /** f32, bf16 or f16. */
  | "wide"
  /** bf16 or f16. */
  | "half"
  | "f32"
  /** An f32 tensor of one element. */
  | "scalar"
  | "u32"
  /** The dtype of the argument `x`. */
  | "as x"
  /** Codes of the format `word`: either `out` holds the codes of `x`, or `x` holds the codes of `out`. */
  | "codes"
  /** f32, bf16, f16, e4m3 or e5m2. */
  | "product"
  /** A copy of a quantized tensor with the argument `spec`: data, scales and amax. */
  | "copy"
  /** Not checked by this table: the function in src/ops has checked it, or it consists of several tensors. */
  | "checked";

/** The rules of arguments, by name. The name of an optional argument ends with "?". */
type Rules<A> = {
  readonly [N in keyof A & string as undefined extends A[N] ? `${N}?` : N]?: TensorRule;
};

interface Row<A> {
  readonly writes: Rules<A>;
  /**
   * The tensors that the operation only reads. A tensor that an earlier operation wrote (such as a statistic) has a rule,
   * because kernels do not check its dtype.
   */
  readonly reads: Rules<A>;
  /** The inputs that `out` may be identical to. Each of their elements is read before it is overwritten and not read again. */
  readonly inPlace?: readonly (keyof A & string)[];
}

interface AnyRow {
  readonly writes: Readonly<Record<string, TensorRule>>;
  readonly reads: Readonly<Record<string, TensorRule>>;
  readonly inPlace?: readonly string[];
}

const x = { x: "checked" } as const;
const grad = { grad: "checked" } as const;
const out = { writes: { out: "wide" }, reads: x } as const;
const outOfGrad = { writes: { out: "wide" }, reads: { ...grad, ...x } } as const;
const asX = { writes: { out: "as x" }, reads: x } as const;
const scalar = { writes: { out: "scalar" }, reads: x } as const;
const copies = { "rowwise?": "copy", "columnwise?": "copy", "amaxRecord?": "scalar" } as const;
const given = { "scale?": "checked", "amax?": "checked", "amaxColumnwise?": "checked" } as const;
const statistics = { rstd: "f32", "mean?": "f32" } as const;
const norm = { ...x, gamma: "checked", "beta?": "checked" } as const;
const logits = { logits: "checked", targets: "checked" } as const;
const step = { ...grad, "gradScale?": "checked", "noop?": "checked" } as const;

const TENSORS: { readonly [K in OpName]: Row<OpArgs[K]> } = {
  activation: out,
  activationBackward: { ...outOfGrad, inPlace: ["x"] },
  activationQuantize: { writes: copies, reads: { ...x, ...given, "grad?": "checked" } },
  adamw: { writes: { parameter: "f32", m: "f32", v: "f32", "copy?": "half" }, reads: step },
  add: { writes: { out: "wide" }, reads: { ...x, y: "checked" }, inPlace: ["x", "y"] },
  amax: scalar,
  biasGradQuantize: { writes: { ...copies, biasGrad: "wide" }, reads: { ...x, ...given } },
  clipFactor: { writes: { norm: "f32", factor: "f32" }, reads: { sums: "checked" } },
  columnSum: out,
  crossEntropy: { writes: { loss: "f32", maximum: "f32", total: "f32" }, reads: logits },
  crossEntropyBackward: {
    writes: { dx: "wide" },
    reads: { grad: "f32", maximum: "f32", total: "f32", ...logits },
  },
  decode: { writes: { out: "wide" }, reads: { x: "codes" } },
  dequantize: { writes: { out: "wide" }, reads: { copy: "checked" } },
  embedding: { writes: { out: "wide" }, reads: { table: "checked", ids: "checked" } },
  embeddingBackward: { writes: { out: "wide" }, reads: { ...grad, ids: "checked" } },
  encode: { writes: { out: "codes" }, reads: x },
  gated: out,
  gatedBackward: outOfGrad,
  gemm: {
    writes: { out: "product", "amax?": "scalar", "preGelu?": "wide" },
    reads: { ...x, w: "checked", "c?": "checked", "bias?": "checked" },
    inPlace: ["c"],
  },
  hadamard: asX,
  mse: { writes: { loss: "f32" }, reads: { ...x, target: "checked" } },
  mseBackward: { writes: { dx: "wide" }, reads: { grad: "f32", ...x, target: "checked" } },
  norm: { writes: { out: "wide", ...statistics }, reads: norm },
  normBackward: {
    writes: { dx: "wide", dgamma: "wide", "dbeta?": "wide" },
    reads: { ...statistics, ...grad, ...x, gamma: "checked" },
  },
  normQuantize: { writes: { ...copies, ...statistics }, reads: { ...norm, ...given } },
  quantize: { writes: copies, reads: { ...x, ...given, "noop?": "checked" } },
  relayout: asX,
  scaled: { ...out, inPlace: ["x"] },
  sgd: { writes: { parameter: "f32", "m?": "f32", "copy?": "half" }, reads: step },
  softmax: out,
  softmaxBackward: { writes: { dx: "wide" }, reads: { ...grad, y: "checked" } },
  squareSum: scalar,
  swapAxes: asX,
  sweep: { writes: { out: "u32" }, reads: {} },
  transpose: asX,
  updateScales: { writes: { amaxHistory: "f32", scale: "f32" }, reads: {} },
};

/** One tensor of an operation. */
export interface TensorRow {
  readonly name: string;
  readonly rule: TensorRule;
  readonly optional: boolean;
  readonly written: boolean;
  /** For an input: whether `out` may be the same memory. */
  readonly inPlace: boolean;
}

/** The tensors of every operation. Outputs come first. */
export const TENSOR_ROWS: ReadonlyMap<OpName, readonly TensorRow[]> = new Map(
  Object.entries(TENSORS).map(([op, { writes, reads, inPlace = [] }]: [string, AnyRow]) => [
    op as OpName,
    [...rowsOf(writes, true, []), ...rowsOf(reads, false, inPlace)],
  ]),
);

function rowsOf(
  rules: Readonly<Record<string, TensorRule>>,
  written: boolean,
  inPlace: readonly string[],
): readonly TensorRow[] {
  return Object.entries(rules).map(([key, rule]) => {
    const name = key.replace("?", "");
    return { name, rule, optional: key.endsWith("?"), written, inPlace: inPlace.includes(name) };
  });
}

/**
 * Whether all outputs of `op` are empty. Kernels are then not called: if one size is zero, another size may exceed their range.
 */
export function writesNothing<K extends OpName>(op: K, args: OpArgs[K]): boolean {
  const rows = TENSOR_ROWS.get(op) as readonly TensorRow[];
  const given = args as object as Readonly<Record<string, unknown>>;
  for (let i = 0; i < rows.length; i++) {
    const { name, rule, written } = rows[i] as TensorRow;
    if (!written) break;
    const each = given[name];
    if (each === undefined) continue;
    if (rule === "copy" ? !isEmptyCopy(each as QuantizedCopy) : (each as Tensor).byteLength > 0) return false;
  }
  return true;
}

function isEmptyCopy({ scaleInv, data, amax }: QuantizedCopy): boolean {
  return scaleInv.byteLength === 0 && data.byteLength === 0 && !amax?.byteLength;
}
