// The update of the amax histories and scales of delayed scaling, equal to TransformerEngine's bulk kernel (numerics.md
// §2.2). A slot is the column of the history and the scale that belong to one tensor.

const FLT_MAX = reinterpret<f32>(0x7f7fffff);

/** The arguments of `updateScales`. */
@unmanaged
class UpdateScalesTask {
  history: usize;
  scale: usize;
  length: usize;
  slots: usize;
  scaledMax: f32;
  mostRecent: bool;
}

/** Updates slots [begin, end) of history[length, slots] and scale[slots], both f32, in place. */
export function updateScales(task: UpdateScalesTask, begin: usize, end: usize): void {
  const history = task.history;
  const scale = task.scale;
  const length = task.length;
  const slots = task.slots;
  const scaledMax = task.scaledMax;
  const mostRecent = task.mostRecent;
  const pitch = slots << 2;
  for (let slot = begin; slot < end; slot++) {
    const first = history + (slot << 2);
    const latest = load<f32>(first);
    // the previous scale may be infinite; an update makes it FLT_MAX, even where it computes no new scale
    const previousScale = load<f32>(scale + (slot << 2));
    if (abs(previousScale) === Infinity) store<f32>(scale + (slot << 2), FLT_MAX);
    if (latest === 0) continue;
    // a NaN amax fails this comparison, so it counts as 0
    let amax: f32 = latest > 0 ? latest : 0;
    let row = first;
    for (const last = first + (length - 1) * pitch; row < last; row += pitch) {
      const older = load<f32>(row + pitch);
      if (older > amax) amax = older;
      store<f32>(row, older);
    }
    store<f32>(row, latest);
    store<f32>(first, 0);
    if (mostRecent) amax = latest;
    if (amax > 0 && amax < Infinity) {
      const quotient = scaledMax / amax;
      store<f32>(scale + (slot << 2), quotient < Infinity ? quotient : FLT_MAX);
    }
  }
}
