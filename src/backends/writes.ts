/** What each operation writes, so that a backend can tell when there is nothing to do. */
import type { QuantizedCopy } from "../tensor/quantized.js";
import type { Tensor } from "../tensor/tensor.js";
import type { OpArgs, OpName, QuantizeArgs } from "./ops.js";

type Written = readonly (Tensor | undefined)[];

const membersOf = (copy: QuantizedCopy | undefined): Written =>
  copy ? [copy.scaleInv, copy.data, copy.amax] : [];

const copies = (args: Pick<QuantizeArgs, "rowwise" | "columnwise" | "amaxRecord">): Written => [
  ...membersOf(args.rowwise),
  ...membersOf(args.columnwise),
  args.amaxRecord,
];

const out = (args: { readonly out: Tensor }): Written => [args.out];
const dx = (args: { readonly dx: Tensor }): Written => [args.dx];

const WRITES: { readonly [K in OpName]: (args: OpArgs[K]) => Written } = {
  activation: out,
  activationBackward: out,
  activationQuantize: copies,
  adamw: ({ parameter, m, v, copy }) => [parameter, m, v, copy],
  add: out,
  amax: out,
  clipFactor: ({ norm, factor }) => [norm, factor],
  columnSum: out,
  crossEntropy: ({ loss, maximum, total }) => [loss, maximum, total],
  crossEntropyBackward: dx,
  decode: out,
  dequantize: out,
  embedding: out,
  embeddingBackward: out,
  encode: out,
  gated: out,
  gatedBackward: out,
  gemm: (args) => [args.out, args.amax, args.preGelu],
  hadamard: out,
  mse: ({ loss }) => [loss],
  mseBackward: dx,
  norm: (args) => [args.out, args.rstd, args.mean],
  normBackward: (args) => [args.dx, args.dgamma, args.dbeta],
  normQuantize: (args) => [...copies(args), args.rstd, args.mean],
  quantize: copies,
  relayout: out,
  scaled: out,
  sgd: ({ parameter, m, copy }) => [parameter, m, copy],
  softmax: out,
  softmaxBackward: dx,
  squareSum: out,
  swapAxes: out,
  sweep: out,
  transpose: out,
  updateScales: ({ amaxHistory, scale }) => [amaxHistory, scale],
};

/**
 * Whether everything that `op` writes has no elements. Kernels are not asked then: next to a size of zero another may be
 * larger than what they count in.
 */
export function writesNothing<K extends OpName>(op: K, args: OpArgs[K]): boolean {
  const written = WRITES[op](args);
  for (let i = 0; i < written.length; i++) {
    const each = written[i];
    if (each && each.byteLength > 0) return false;
  }
  return true;
}
