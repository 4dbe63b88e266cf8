/** What every operation begins with, checks of its arguments, and ends with: ask the backend, then run. */

import type { Backend, Support } from "../backends/backend.js";
import type { OpArgs, OpName } from "../backends/ops.js";
import { ArgumentError, ShapeError, UnsupportedError } from "../errors.js";
import { optionsOf } from "../options.js";
import { requireTensor, requireWide, wideDType } from "../tensor/require.js";
import { type Shape, sameShape, type WideDType } from "../tensor/shape.js";
import { Tensor } from "../tensor/tensor.js";
import { requireOutputs } from "./outputs.js";
import { requireApart } from "./overlap.js";

/**
 * Runs `op`, and says what the backend promised of it. Throws `UnsupportedError` with the backend's reason not to,
 * `ArgumentError` where it would write what it reads and does not do so in place.
 */
export function execute<K extends OpName>(
  backend: Backend,
  op: K,
  args: OpArgs[K],
): Support & { readonly ok: true } {
  requireOutputs(op, args);
  requireApart(op, args);
  const support = backend.supports(op, args);
  if (!support.ok) throw new UnsupportedError(op, support.reason);
  backend.run(op, args);
  return support;
}

/** The backend on which all tensors live. Throws `ArgumentError` where there are several, `DTypeError` for no tensor. */
export function commonBackend(op: string, ...tensors: readonly (Tensor | undefined)[]): Backend {
  let backend: Backend | undefined;
  let several = false;
  for (const tensor of tensors) {
    if (tensor === undefined) continue;
    requireTensor(op, "what it computes with", tensor);
    backend ??= tensor.backend;
    several ||= tensor.backend !== backend;
  }
  if (backend && !several) return backend;
  throw new ArgumentError(
    `${op}: its tensors live on different backends; move them to one by data() and tensor()`,
  );
}

/** Where a result goes that has the shape of an input. */
export interface ResultOptions {
  /** Default: the type of `out`, else that of the first input. */
  readonly outDtype?: WideDType | undefined;
  /** Takes the result; may be an input itself. */
  readonly out?: Tensor | undefined;
}

const checkResult = optionsOf<ResultOptions>({ outDtype: wideDType, out: requireWide });

/** `out` if it is given and fits the first of the inputs and `outDtype`, else a new tensor that does. */
export function resultFor(
  op: string,
  inputs: readonly [Tensor<WideDType>, ...Tensor[]],
  options: ResultOptions,
): Tensor<WideDType> {
  const { outDtype, out } = checkResult(op, options);
  const given = out && requireWide(op, "out", out);
  const backend = commonBackend(op, ...inputs, given);
  const [{ shape, dtype }] = inputs;
  if (!given) return new Tensor(backend, outDtype ?? dtype, shape);
  requireShape(op, "out", given, shape);
  if (outDtype !== undefined && outDtype !== given.dtype)
    throw new ArgumentError(`${op}: out is ${given.dtype} and outDtype ${outDtype}; leave outDtype out`);
  return given;
}

/** Throws `ShapeError` unless `x` has that shape. */
export function requireShape(op: string, name: string, x: Tensor, shape: Shape): void {
  if (!sameShape(x.shape, shape))
    throw new ShapeError(`${op}: ${name} is [${x.shape}]; it must be [${shape}]`);
}
