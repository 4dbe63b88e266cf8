/** Checks the dtype of each output just before the backend runs. The backend does not check them again. */
import { isGemmOut } from "../backends/ops/gemm.js";
import type { OpArgs, OpName } from "../backends/ops.js";
import type { TensorRule } from "../backends/tensors.js";
import { TENSOR_ROWS, type TensorRow } from "../backends/writes.js";
import { DTypeError, ShapeError } from "../errors.js";
import { BLOCK_FORMATS } from "../formats/block.js";
import type { QuantizedCopy, QuantizeSpec } from "../tensor/quantized.js";
import { requireF32, requireHalf, requireScalar, requireTensor, requireWide } from "../tensor/require.js";
import { type DType, elementCount, storageBits } from "../tensor/shape.js";
import type { Tensor } from "../tensor/tensor.js";

/** A check of one tensor of a call. */
type Check = (op: string, name: string, x: Tensor, args: RuledArgs) => unknown;

/** The other arguments of the call that a check may need. */
interface RuledArgs {
  readonly x: Tensor;
  readonly out: Tensor;
  readonly word: number;
  readonly spec: QuantizeSpec;
}

const CHECKS: Readonly<Record<Exclude<TensorRule, "copy" | "checked">, Check>> = {
  wide: requireWide,
  half: requireHalf,
  f32: requireF32,
  scalar: requireScalar,
  i32: (op, name, x) => requireType(op, name, x, "i32"),
  u32: (op, name, x) => requireType(op, name, x, "u32"),
  "as x": (op, name, out, { x }) => requireType(op, name, out, x.dtype),
  codes: (op, name, codes, { x, out, word }) => requireCodes(op, name, codes, word, codes === out ? x : out),
  product: (op, name, x) => (isGemmOut(x.dtype) ? requireTensor(op, name, x) : requireWide(op, name, x)),
};

/** Throws `DTypeError` for an output whose dtype `op` cannot write, `DisposedError` for a disposed output. */
export function requireOutputs<K extends OpName>(op: K, args: OpArgs[K]): void {
  const rows = TENSOR_ROWS.get(op) as readonly TensorRow[];
  // the table of an operation lists only arguments of that operation
  const fields = args as object as Readonly<Record<string, unknown>> & RuledArgs;
  for (let i = 0; i < rows.length; i++) {
    const { name, rule, optional } = rows[i] as TensorRow;
    if (rule === "checked") continue;
    const each = fields[name];
    if (each === undefined && optional) continue;
    if (rule === "copy") requireCopy(op, fields.spec, each as QuantizedCopy);
    else CHECKS[rule](op, name, each as Tensor, fields);
  }
}

function requireType(op: string, name: string, x: Tensor, dtype: DType): void {
  if (requireTensor(op, name, x).dtype === dtype) return;
  throw new DTypeError(`${op}: ${name} is ${x.dtype}; it must be ${dtype}`);
}

/** Throws `DTypeError` unless `codes` has space for exactly one code of the format per element of `values`. */
function requireCodes(op: string, name: string, codes: Tensor, word: number, values: Tensor): void {
  const { dtype, byteLength } = requireTensor(op, name, codes);
  const bits = (word & 15) + ((word >> 4) & 15) + ((word >> 8) & 1);
  const stored = bits <= 4 ? 4 : bits <= 8 ? 8 : bits <= 16 ? 16 : 32;
  const isPacked = stored === 4 && dtype === "u8";
  if ((storageBits(dtype) === stored || isPacked) && byteLength * 8 === values.size * stored) return;
  throw new DTypeError(
    `${op}: ${name} is ${dtype} [${codes.shape}]; it must hold ${values.size} codes of ${bits} bits`,
  );
}

function requireCopy(
  op: string,
  spec: QuantizeSpec,
  { data, scaleInv, amax, geometry }: QuantizedCopy,
): void {
  requireType(op, "data", data, spec.format);
  requireType(op, "scaleInv", scaleInv, BLOCK_FORMATS[spec.quantizer].scale);
  if (!amax) return;
  requireType(op, "amax", amax, "f32");
  const { amaxShape = [] } = geometry;
  if (amax.size !== elementCount(amaxShape))
    throw new ShapeError(`${op}: amax is [${amax.shape}]; it must be [${amaxShape}]`);
}
