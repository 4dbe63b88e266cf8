// The update of delayed scaling's histories and scales, equal to TransformerEngine's bulk kernel (numerics.md §2.2).

const FLT_MAX = reinterpret<f32>(0x7f7fffff);

/** Updates the slots [begin, end) of history[length, slots] and scale[slots], f32, in place. */
export function updateScales(
  history: usize,
  scale: usize,
  length: usize,
  slots: usize,
  scaledMax: f32,
  mostRecent: bool,
  begin: usize,
  end: usize,
): void {
  const pitch = slots << 2;
  for (let slot = begin; slot < end; slot++) {
    const first = history + (slot << 2);
    const latest = load<f32>(first);
    // an update leaves no scale infinite, including the previous one
    const kept = load<f32>(scale + (slot << 2));
    if (abs(kept) === Infinity) store<f32>(scale + (slot << 2), FLT_MAX);
    if (latest === 0) continue;
    // NaN does not compare as larger
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
