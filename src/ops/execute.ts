/** The steps that all operations share: checking the arguments, asking the backend for support, running the operation. */

import type { Backend, Support } from "../backends/backend.js";
import type { OpArgs, OpName } from "../backends/ops.js";
import { runEachOn, runOn } from "../backends/run.js";
import { ArgumentError, ShapeError, UnsupportedError } from "../errors.js";
import { optionsOf } from "../options.js";
import type { QuantizedTensor } from "../tensor/quantized.js";
import { requireTensor, requireWide, wideDType } from "../tensor/require.js";
import { type Shape, sameShape, type WideDType } from "../tensor/shape.js";
import { Tensor } from "../tensor/tensor.js";
import { requireOutputs } from "./outputs.js";
import { requireApart } from "./overlap.js";

/**
 * Runs `op` and returns the backend's answer about its support. Throws `UnsupportedError` with the backend's reason, and
 * `ArgumentError` if an output overlaps an input, except where the operation may run in place.
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
  runOn(backend, op, args);
  return support;
}

/**
 * Runs `op` for each element of a list, with the result of running one after the other. The caller has checked the tensors. If
 * `areApart` is true, because no element writes memory that another one uses, the backend may run all as one piece of work. No
 * element runs if one is refused.
 */
export function executeEach<K extends OpName>(
  backend: Backend,
  op: K,
  list: readonly OpArgs[K][],
  areApart: boolean,
): void {
  for (const args of list) {
    if (!areApart) requireApart(op, args);
    const support = backend.supports(op, args);
    if (!support.ok) throw new UnsupportedError(op, support.reason);
  }
  if (areApart) runEachOn(backend, op, list);
  else for (const args of list) runOn(backend, op, args);
}

/** Runs `op` as `execute` does, and returns its output `out`, a new tensor. If that throws, `out` is disposed of. */
export function compute<K extends OpName, T extends Tensor>(op: K, args: OpArgs[K] & { readonly out: T }): T {
  const { out } = args;
  try {
    execute(out.backend, op, args);
  } catch (error) {
    out.dispose();
    throw error;
  }
  return out;
}

/** Throws `ArgumentError` for a tensor on a different backend than the first one. Undefined is accepted. */
export function requireBackendOf(
  op: string,
  { backend }: { readonly backend: Backend },
  ...tensors: readonly (Tensor | QuantizedTensor | undefined)[]
): void {
  for (const tensor of tensors) {
    if (tensor !== undefined && tensor.backend !== backend) throw severalBackends(op);
  }
}

function severalBackends(op: string): ArgumentError {
  return new ArgumentError(
    `${op}: its tensors live on different backends; move them to one by data() and tensor()`,
  );
}

/**
 * Returns the backend of all the tensors. Throws `ArgumentError` if they live on different backends, `DTypeError` for an
 * argument that is not a tensor.
 */
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
  throw severalBackends(op);
}

/** Options of the output of an elementwise operation, which keeps the shape of its input. */
export interface ResultOptions {
  /** The dtype of the result. Default: the dtype of `out`, else the dtype of the first input. */
  readonly outDtype?: WideDType | undefined;
  /** The tensor that receives the result. It may be an input itself. Default: a new tensor. */
  readonly out?: Tensor | undefined;
}

const checkResult = optionsOf<ResultOptions>({ outDtype: wideDType, out: requireWide });

/** Returns `out`, checked against the first input and `outDtype`, or a new tensor if `out` is not given. */
export function resultFor(
  op: string,
  inputs: readonly [Tensor<WideDType>, ...Tensor[]],
  options: ResultOptions,
): Tensor<WideDType> {
  const { outDtype, out } = checkResult(op, options);
  const target = out && requireWide(op, "out", out);
  const backend = commonBackend(op, ...inputs, target);
  const [{ shape, dtype }] = inputs;
  if (!target) return new Tensor(backend, outDtype ?? dtype, shape);
  requireShape(op, "out", target, shape);
  if (outDtype !== undefined && outDtype !== target.dtype)
    throw new ArgumentError(`${op}: out is ${target.dtype} and outDtype ${outDtype}; leave outDtype out`);
  return target;
}

/** Throws `ShapeError` unless `x` has the shape `shape`. */
export function requireShape(op: string, name: string, x: Tensor, shape: Shape): void {
  if (!sameShape(x.shape, shape))
    throw new ShapeError(`${op}: ${name} is [${x.shape}]; it must be [${shape}]`);
}
