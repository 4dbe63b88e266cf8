// One step of an optimizer, element by element, in place (numerics.md §9). p is the parameter, and g is the gradient
// times `gradScale`. `undamped` is 1 - dampening. All values are f32, and every operation is rounded, in the order
// written:
//
//   sgd     d = g + weightDecay p, where weightDecay is not 0
//           m = d on the first step, else momentum m + undamped d;  s = m, or d + momentum m under nesterov
//           p = p - learningRate s                          without a buffer m, s is d
//   adamw   g = g + weightDecay p, unless decoupled
//           m = beta1 m + (1 - beta1) g                     v = beta2 v + ((1 - beta2) g) g
//           u = (m / correction1) / (sqrt(v / correction2) + epsilon), plus weightDecay p where decoupled
//           p = p - learningRate u
//
// If `copy` is not null, the new p is also stored there, rounded to `copyType`.
//
// Every export takes `scratch`, eight buffers of the calling thread (core/scratch.ts): converted gradients, the
// elements left over from vectors of four, and constants.
import { BUFFER, CHUNK } from "../core/scratch";
import { asF32, narrow } from "../core/wide";

/** Updates elements [begin, end). A null `m` means no momentum. If `first`, m is written but not read. */
export function sgd(
  grad: usize,
  gradType: u32,
  p: usize,
  m: usize,
  copy: usize,
  copyType: u32,
  gradScale: f32,
  learningRate: f32,
  momentum: f32,
  undamped: f32,
  weightDecay: f32,
  nesterov: bool,
  first: bool,
  scratch: usize,
  begin: usize,
  end: usize,
): void {
  const tail = scratch + BUFFER;
  const constants = tail + BUFFER;
  splat(constants, 0, gradScale);
  splat(constants, 1, learningRate);
  splat(constants, 2, momentum);
  splat(constants, 3, undamped);
  splat(constants, 4, weightDecay);
  const decays = weightDecay !== 0;
  for (let i = begin; i < end; i += CHUNK) {
    const count = min(CHUNK, end - i);
    const vectorCount = count & ~3;
    const at = (i + vectorCount) << 2;
    const bytes = (count - vectorCount) << 2;
    const g = asF32(grad, gradType, i, count, scratch);
    const mine = m ? m + (i << 2) : 0;
    sgdEach(g, p + (i << 2), mine, vectorCount, constants, decays, nesterov, first);
    if (bytes) {
      memory.copy(tail, g + (vectorCount << 2), bytes);
      memory.copy(tail + 16, p + at, bytes);
      if (m) memory.copy(tail + 32, m + at, bytes);
      sgdEach(tail, tail + 16, m ? tail + 32 : 0, 4, constants, decays, nesterov, first);
      memory.copy(p + at, tail + 16, bytes);
      if (m) memory.copy(m + at, tail + 32, bytes);
    }
    if (copy) narrow(p + (i << 2), copy, copyType, i, count);
  }
}

/** Updates elements [begin, end). */
export function adamw(
  grad: usize,
  gradType: u32,
  p: usize,
  m: usize,
  v: usize,
  copy: usize,
  copyType: u32,
  gradScale: f32,
  learningRate: f32,
  beta1: f32,
  beta2: f32,
  correction1: f32,
  correction2: f32,
  epsilon: f32,
  weightDecay: f32,
  decoupled: bool,
  scratch: usize,
  begin: usize,
  end: usize,
): void {
  const tail = scratch + BUFFER;
  const constants = tail + BUFFER;
  splat(constants, 0, gradScale);
  splat(constants, 1, learningRate);
  splat(constants, 2, beta1);
  splat(constants, 3, <f32>1 - beta1);
  splat(constants, 4, beta2);
  splat(constants, 5, <f32>1 - beta2);
  splat(constants, 6, correction1);
  splat(constants, 7, correction2);
  splat(constants, 8, epsilon);
  splat(constants, 9, weightDecay);
  for (let i = begin; i < end; i += CHUNK) {
    const count = min(CHUNK, end - i);
    const vectorCount = count & ~3;
    const at = (i + vectorCount) << 2;
    const bytes = (count - vectorCount) << 2;
    const g = asF32(grad, gradType, i, count, scratch);
    adamwEach(g, p + (i << 2), m + (i << 2), v + (i << 2), vectorCount, constants, decoupled);
    if (bytes) {
      memory.copy(tail, g + (vectorCount << 2), bytes);
      memory.copy(tail + 16, p + at, bytes);
      memory.copy(tail + 32, m + at, bytes);
      memory.copy(tail + 48, v + at, bytes);
      adamwEach(tail, tail + 16, tail + 32, tail + 48, 4, constants, decoupled);
      memory.copy(p + at, tail + 16, bytes);
      memory.copy(m + at, tail + 32, bytes);
      memory.copy(v + at, tail + 48, bytes);
    }
    if (copy) narrow(p + (i << 2), copy, copyType, i, count);
  }
}

/** Updates `count` elements, a multiple of four. `m` is null without momentum. */
function sgdEach(
  g: usize,
  p: usize,
  m: usize,
  count: usize,
  constants: usize,
  decays: bool,
  nesterov: bool,
  first: bool,
): void {
  const gradScale = v128.load(constants);
  const learningRate = v128.load(constants, 16);
  const momentum = v128.load(constants, 32);
  const undamped = v128.load(constants, 48);
  const weightDecay = v128.load(constants, 64);
  for (const end = g + (count << 2); g < end; g += 16, p += 16) {
    const parameter = v128.load(p);
    let step = f32x4.mul(v128.load(g), gradScale);
    if (decays) step = f32x4.add(step, f32x4.mul(weightDecay, parameter));
    if (m) {
      let momentumBuffer = step;
      if (!first) momentumBuffer = f32x4.add(f32x4.mul(momentum, v128.load(m)), f32x4.mul(undamped, step));
      v128.store(m, momentumBuffer);
      step = nesterov ? f32x4.add(step, f32x4.mul(momentum, momentumBuffer)) : momentumBuffer;
      m += 16;
    }
    v128.store(p, f32x4.sub(parameter, f32x4.mul(learningRate, step)));
  }
}

/** Updates `count` elements, a multiple of four. */
function adamwEach(
  g: usize,
  p: usize,
  m: usize,
  v: usize,
  count: usize,
  constants: usize,
  decoupled: bool,
): void {
  const gradScale = v128.load(constants);
  const learningRate = v128.load(constants, 16);
  const beta1 = v128.load(constants, 32);
  const rest1 = v128.load(constants, 48);
  const beta2 = v128.load(constants, 64);
  const rest2 = v128.load(constants, 80);
  const correction1 = v128.load(constants, 96);
  const correction2 = v128.load(constants, 112);
  const epsilon = v128.load(constants, 128);
  const weightDecay = v128.load(constants, 144);
  for (const end = g + (count << 2); g < end; g += 16, p += 16, m += 16, v += 16) {
    const parameter = v128.load(p);
    const decay = f32x4.mul(weightDecay, parameter);
    let x = f32x4.mul(v128.load(g), gradScale);
    if (!decoupled) x = f32x4.add(x, decay);
    const average = f32x4.add(f32x4.mul(beta1, v128.load(m)), f32x4.mul(rest1, x));
    const squareAverage = f32x4.add(f32x4.mul(beta2, v128.load(v)), f32x4.mul(f32x4.mul(rest2, x), x));
    v128.store(m, average);
    v128.store(v, squareAverage);
    const root = f32x4.add(f32x4.sqrt(f32x4.div(squareAverage, correction2)), epsilon);
    let update = f32x4.div(f32x4.div(average, correction1), root);
    if (decoupled) update = f32x4.add(update, decay);
    v128.store(p, f32x4.sub(parameter, f32x4.mul(learningRate, update)));
  }
}

/** Stores four copies of `value` at constants[index]. */
function splat(constants: usize, index: usize, value: f32): void {
  v128.store(constants + (index << 4), f32x4.splat(value));
}
