/** What each operation may write into: the last check before a backend, which trusts the types of its arguments. */
import type { OpArgs, OpName } from "../backends/ops.js";
import { DTypeError } from "../errors.js";
import { BLOCK_FORMATS } from "../formats/block.js";
import type { QuantizedCopy, QuantizeSpec } from "../tensor/quantized.js";
import { requireF32, requireHalf, requireScalar, requireTensor, requireWide } from "../tensor/require.js";
import { type DType, storageBits } from "../tensor/shape.js";
import type { Tensor } from "../tensor/tensor.js";

type Outputs = { readonly [K in OpName]: (op: string, args: OpArgs[K]) => void };

const wideOut = (op: string, { out }: { readonly out: Tensor }): void => void requireWide(op, "out", out);
const wideDx = (op: string, { dx }: { readonly dx: Tensor }): void => void requireWide(op, "dx", dx);
const scalarOut = (op: string, { out }: { readonly out: Tensor }): void => void requireScalar(op, "out", out);

const sameType = (op: string, { x, out }: { readonly x: Tensor; readonly out: Tensor }): void =>
  requireType(op, "out", out, x.dtype);

const OUTPUTS: Outputs = {
  encode: (op, { x, word, out }) => requireCodes(op, "out", out, word, x),
  decode: (op, { x, word, out }) => {
    requireWide(op, "out", out);
    requireCodes(op, "x", x, word, out);
  },
  amax: scalarOut,
  quantize: copiesOut,
  dequantize: wideOut,
  transpose: sameType,
  swapAxes: sameType,
  relayout: sameType,
  hadamard: sameType,
  sweep: (op, { out }) => requireType(op, "out", out, "u32"),
  activation: wideOut,
  activationBackward: wideOut,
  gated: wideOut,
  gatedBackward: wideOut,
  activationQuantize: copiesOut,
  norm: (op, args) => {
    wideOut(op, args);
    statistics(op, args);
  },
  normQuantize: (op, args) => {
    copiesOut(op, args);
    statistics(op, args);
  },
  normBackward: (op, args) => {
    wideDx(op, args);
    statistics(op, args);
    requireWide(op, "dgamma", args.dgamma);
    if (args.dbeta) requireWide(op, "dbeta", args.dbeta);
  },
  crossEntropy: (op, { loss, maximum, total }) => allF32(op, { loss, maximum, total }),
  crossEntropyBackward: (op, args) => {
    const { grad, maximum, total } = args;
    allF32(op, { grad, maximum, total });
    wideDx(op, args);
  },
  softmax: wideOut,
  softmaxBackward: wideDx,
  add: wideOut,
  scaled: wideOut,
  columnSum: wideOut,
  mse: (op, { loss }) => allF32(op, { loss }),
  mseBackward: (op, args) => {
    allF32(op, { grad: args.grad });
    wideDx(op, args);
  },
  embedding: wideOut,
  embeddingBackward: wideOut,
  squareSum: scalarOut,
  clipFactor: (op, { norm, factor }) => allF32(op, { norm, factor }),
  updateScales: (op, { amaxHistory, scale }) => allF32(op, { amaxHistory, scale }),
  sgd: (op, { parameter, m, copy }) => {
    requireF32(op, "parameter", parameter);
    if (m) requireF32(op, "m", m);
    if (copy) requireHalf(op, "copy", copy);
  },
  adamw: (op, { parameter, m, v, copy }) => {
    requireF32(op, "parameter", parameter);
    requireF32(op, "m", m);
    requireF32(op, "v", v);
    if (copy) requireHalf(op, "copy", copy);
  },
  gemm: (op, { out, preGelu, amax }) => {
    if (out.dtype !== "e4m3" && out.dtype !== "e5m2") requireWide(op, "out", out);
    else requireTensor(op, "out", out);
    if (preGelu) requireWide(op, "preGelu", preGelu);
    if (amax) requireScalar(op, "amax", amax);
  },
};

/** Throws `DTypeError` where `op` would write another type than it can, `DisposedError` where there is no memory any more. */
export function requireOutputs<K extends OpName>(op: K, args: OpArgs[K]): void {
  OUTPUTS[op](op, args);
}

function requireType(op: string, name: string, x: Tensor, dtype: DType): void {
  if (requireTensor(op, name, x).dtype === dtype) return;
  throw new DTypeError(`${op}: ${name} is ${x.dtype}; it must be ${dtype}`);
}

function allF32(op: string, tensors: Readonly<Record<string, Tensor | undefined>>): void {
  for (const name in tensors) if (tensors[name]) requireF32(op, name, tensors[name]);
}

function statistics(
  op: string,
  { mean, rstd }: { readonly mean?: Tensor | undefined; readonly rstd: Tensor },
) {
  allF32(op, { mean, rstd });
}

/** As many codes of the format as `values` has elements. */
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

interface Copies {
  readonly spec: QuantizeSpec;
  readonly rowwise?: QuantizedCopy | undefined;
  readonly columnwise?: QuantizedCopy | undefined;
  readonly amaxRecord?: Tensor | undefined;
}

function copyOut(op: string, spec: QuantizeSpec, { data, scaleInv, amax }: QuantizedCopy): void {
  requireType(op, "data", data, spec.format);
  requireType(op, "scaleInv", scaleInv, BLOCK_FORMATS[spec.quantizer].scale);
  if (amax) requireScalar(op, "amax", amax);
}

function copiesOut(op: string, { spec, rowwise, columnwise, amaxRecord }: Copies): void {
  if (rowwise) copyOut(op, spec, rowwise);
  if (columnwise) copyOut(op, spec, columnwise);
  if (amaxRecord) requireScalar(op, "amaxRecord", amaxRecord);
}
