// Activations and their gradients. A value or derivative is evaluated in f64 and rounded once to f32. The chain rule's
// product, gradient times derivative, is an f32 product.
//
//   gelu     x / (1 + e^-2u), u = x (0.79788456 + 0.03567741 x^2): the tanh form, as 1 + tanh u = 2 / (1 + e^-2u)
//   silu     x / (1 + e^-x)              qgelu    x / (1 + e^-1.702x)         sigmoid  1 / (1 + e^-x)
//   relu     x where x > 0, else 0       srelu    x^2 where x > 0, else 0
//
// The decimals stand for their nearest f32. relu and srelu map NaN to 0. gelu, silu and qgelu give NaN at -infinity,
// because their formula divides infinity by infinity. Their derivatives give NaN at both infinities, because they
// multiply 0 by infinity.
//
// Every export takes `scratch`, eight buffers of the calling thread (core/scratch.ts).

import { Activation } from "../contract";
import { multiply } from "../core/chunk";
import { BUFFER, CHUNK } from "../core/scratch";
import { narrow, widen } from "../core/wide";
import { activate, differentiate } from "./curve";

/** The arguments of `activation`. */
@unmanaged
class ActivationTask {
  src: usize;
  srcType: u32;
  dst: usize;
  dstType: u32;
  kind: u32;
}

/** dst[i] = act(src[i]) for i in [begin, end). */
export function activation(task: ActivationTask, scratch: usize, begin: usize, end: usize): void {
  for (let i = begin; i < end; i += CHUNK) {
    const count = min(CHUNK, end - i);
    widen(task.src, task.srcType, i, count, scratch);
    activate(task.kind, alphaOf(task.kind), scratch, count);
    narrow(scratch, task.dst, task.dstType, i, count);
  }
}

/** The arguments of `activationBackward`. */
@unmanaged
class ActivationBackwardTask {
  grad: usize;
  gradType: u32;
  src: usize;
  srcType: u32;
  dst: usize;
  dstType: u32;
  kind: u32;
}

/** dst[i] = grad[i] * act'(src[i]) for i in [begin, end). */
export function activationBackward(
  task: ActivationBackwardTask,
  scratch: usize,
  begin: usize,
  end: usize,
): void {
  const factor = scratch + BUFFER;
  for (let i = begin; i < end; i += CHUNK) {
    const count = min(CHUNK, end - i);
    widen(task.src, task.srcType, i, count, scratch);
    widen(task.grad, task.gradType, i, count, factor);
    differentiate(task.kind, alphaOf(task.kind), scratch, count);
    multiply(scratch, factor, count);
    narrow(scratch, task.dst, task.dstType, i, count);
  }
}

/** The factor of x inside the logistic function of qgelu; 1 for all other kinds. */
export function alphaOf(kind: u32): f32 {
  return kind === Activation.Qgelu ? 1.702 : 1.0;
}
