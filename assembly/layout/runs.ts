// Copies of runs of bytes that are equally far apart.

/** Copies `count` runs of `unit` bytes to contiguous memory at dst. In src the runs are `stride` bytes apart. */
export function gatherRuns(src: usize, stride: usize, dst: usize, unit: usize, count: usize): void {
  if (unit === 1) gatherEach<u8>(src, stride, dst, count);
  else if (unit === 2) gatherEach<u16>(src, stride, dst, count);
  else if (unit === 4) gatherEach<u32>(src, stride, dst, count);
  else {
    for (const end = dst + count * unit; dst < end; src += stride, dst += unit) copyRun(src, dst, unit);
  }
}

function gatherEach<T>(src: usize, stride: usize, dst: usize, count: usize): void {
  for (const end = dst + count * sizeof<T>(); dst < end; src += stride, dst += sizeof<T>()) {
    store<T>(dst, load<T>(src));
  }
}

/** Copies `bytes` bytes; multiples of 16 are fastest. */
function copyRun(src: usize, dst: usize, bytes: usize): void {
  const vectorBytes = bytes & ~15;
  for (let i: usize = 0; i < vectorBytes; i += 16) v128.store(dst + i, v128.load(src + i));
  for (let i = vectorBytes; i < bytes; ++i) store<u8>(dst + i, load<u8>(src + i));
}
