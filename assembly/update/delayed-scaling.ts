// The update of delayed scaling's histories and scales, as TransformerEngine's bulk kernel does it (numerics.md §2.2).

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
    const recorded = load<f32>(first);
    // an update leaves no scale infinite, one that it starts from included
    const kept = load<f32>(scale + (slot << 2));
    if (abs(kept) === Infinity) store<f32>(scale + (slot << 2), FLT_MAX);
    if (recorded === 0) continue;
    // NaN compares as not larger
    let amax: f32 = recorded > 0 ? recorded : 0;
    let row = first;
    for (const last = first + (length - 1) * pitch; row < last; row += pitch) {
      const older = load<f32>(row + pitch);
      if (older > amax) amax = older;
      store<f32>(row, older);
    }
    store<f32>(row, recorded);
    store<f32>(first, 0);
    if (mostRecent) amax = recorded;
    if (amax > 0 && amax < Infinity) {
      const quotient = scaledMax / amax;
      store<f32>(scale + (slot << 2), quotient < Infinity ? quotient : FLT_MAX);
    }
  }
}
