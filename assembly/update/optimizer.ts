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
// Every export takes `scratch`, eight buffers of the calling thread (core/scratch.ts): converted gradients, and the elements left
// over from vectors of four with a task of their own.
import { BUFFER, CHUNK } from "../core/scratch";
import { asF32, narrow } from "../core/wide";

/** The arguments of all optimizers. */
@unmanaged
class OptimizerTask {
  grad: usize;
  gradType: u32;
  p: usize;
  m: usize;
  copy: usize;
  copyType: u32;
  gradScale: f32;
  learningRate: f32;
  weightDecay: f32;
}

/** The arguments of `sgd`. A null `m` means no momentum. If `first`, m is written but not read. */
@unmanaged
class SgdTask extends OptimizerTask {
  momentum: f32;
  undamped: f32;
  nesterov: bool;
  first: bool;
}

/** The arguments of `adamw`. */
@unmanaged
class AdamwTask extends OptimizerTask {
  v: usize;
  beta1: f32;
  beta2: f32;
  correction1: f32;
  correction2: f32;
  epsilon: f32;
  decoupled: bool;
}

/** Updates elements [begin, end). */
export function sgd(task: SgdTask, scratch: usize, begin: usize, end: usize): void {
  const tail = scratch + BUFFER;
  const tailTask = changetype<SgdTask>(tail + BUFFER);
  const p = task.p;
  const m = task.m;
  const copy = task.copy;
  for (let i = begin; i < end; i += CHUNK) {
    const count = min(CHUNK, end - i);
    const vectorCount = count & ~3;
    const at = (i + vectorCount) << 2;
    const bytes = (count - vectorCount) << 2;
    const g = asF32(task.grad, task.gradType, i, count, scratch);
    sgdEach(task, g, i, vectorCount);
    if (bytes) {
      memory.copy(changetype<usize>(tailTask), changetype<usize>(task), offsetof<SgdTask>());
      tailTask.p = tail + 16;
      if (m) tailTask.m = tail + 32;
      memory.copy(tail, g + (vectorCount << 2), bytes);
      memory.copy(tail + 16, p + at, bytes);
      if (m) memory.copy(tail + 32, m + at, bytes);
      sgdEach(tailTask, tail, 0, 4);
      memory.copy(p + at, tail + 16, bytes);
      if (m) memory.copy(m + at, tail + 32, bytes);
    }
    if (copy) narrow(p + (i << 2), copy, task.copyType, i, count);
  }
}

/** Updates elements [begin, end). */
export function adamw(task: AdamwTask, scratch: usize, begin: usize, end: usize): void {
  const tail = scratch + BUFFER;
  const tailTask = changetype<AdamwTask>(tail + BUFFER);
  const p = task.p;
  const m = task.m;
  const v = task.v;
  const copy = task.copy;
  for (let i = begin; i < end; i += CHUNK) {
    const count = min(CHUNK, end - i);
    const vectorCount = count & ~3;
    const at = (i + vectorCount) << 2;
    const bytes = (count - vectorCount) << 2;
    const g = asF32(task.grad, task.gradType, i, count, scratch);
    adamwEach(task, g, i, vectorCount);
    if (bytes) {
      memory.copy(changetype<usize>(tailTask), changetype<usize>(task), offsetof<AdamwTask>());
      tailTask.p = tail + 16;
      tailTask.m = tail + 32;
      tailTask.v = tail + 48;
      memory.copy(tail, g + (vectorCount << 2), bytes);
      memory.copy(tail + 16, p + at, bytes);
      memory.copy(tail + 32, m + at, bytes);
      memory.copy(tail + 48, v + at, bytes);
      adamwEach(tailTask, tail, 0, 4);
      memory.copy(p + at, tail + 16, bytes);
      memory.copy(m + at, tail + 32, bytes);
      memory.copy(v + at, tail + 48, bytes);
    }
    if (copy) narrow(p + (i << 2), copy, task.copyType, i, count);
  }
}

/** Updates elements [first, first + count), whose gradients are at `g`; `count` is a multiple of four. */
function sgdEach(task: SgdTask, g: usize, first: usize, count: usize): void {
  let p = task.p + (first << 2);
  let m = task.m ? task.m + (first << 2) : 0;
  const isFirst = task.first;
  const nesterov = task.nesterov;
  const decays = task.weightDecay !== 0;
  const gradScale = f32x4.splat(task.gradScale);
  const learningRate = f32x4.splat(task.learningRate);
  const momentum = f32x4.splat(task.momentum);
  const undamped = f32x4.splat(task.undamped);
  const weightDecay = f32x4.splat(task.weightDecay);
  for (const end = g + (count << 2); g < end; g += 16, p += 16) {
    const parameter = v128.load(p);
    let step = f32x4.mul(v128.load(g), gradScale);
    if (decays) step = f32x4.add(step, f32x4.mul(weightDecay, parameter));
    if (m) {
      let momentumBuffer = step;
      if (!isFirst) momentumBuffer = f32x4.add(f32x4.mul(momentum, v128.load(m)), f32x4.mul(undamped, step));
      v128.store(m, momentumBuffer);
      step = nesterov ? f32x4.add(step, f32x4.mul(momentum, momentumBuffer)) : momentumBuffer;
      m += 16;
    }
    v128.store(p, f32x4.sub(parameter, f32x4.mul(learningRate, step)));
  }
}

/** As `sgdEach`, for `adamw`. */
function adamwEach(task: AdamwTask, g: usize, first: usize, count: usize): void {
  let p = task.p + (first << 2);
  let m = task.m + (first << 2);
  let v = task.v + (first << 2);
  const decoupled = task.decoupled;
  const gradScale = f32x4.splat(task.gradScale);
  const learningRate = f32x4.splat(task.learningRate);
  const beta1 = f32x4.splat(task.beta1);
  const rest1 = f32x4.splat(<f32>1 - task.beta1);
  const beta2 = f32x4.splat(task.beta2);
  const rest2 = f32x4.splat(<f32>1 - task.beta2);
  const correction1 = f32x4.splat(task.correction1);
  const correction2 = f32x4.splat(task.correction2);
  const epsilon = f32x4.splat(task.epsilon);
  const weightDecay = f32x4.splat(task.weightDecay);
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
