// Counts how often each byte of codes occurs with each scale, so that a conversion computes each pair's change once.

/** Adds 1 to a u32. */
function count(at: usize): void {
  store<u32>(at, load<u32>(at) + 1);
}

/**
 * Counts the bytes of groups of `width` bytes. Each group has a one-byte scale. Adds to the u32 at counts + 4 * (256 * scale +
 * byte).
 */
export function countGroups(codes: usize, groups: u32, width: u32, scales: usize, counts: usize): void {
  for (const end = scales + groups; scales < end; ++scales) {
    const scaleCounts = counts + ((<usize>load<u8>(scales)) << 10);
    const last = codes + width;
    for (; codes + 8 <= last; codes += 8) {
      const eight = load<u64>(codes);
      count(scaleCounts + <usize>((eight << 2) & 0x3fc));
      count(scaleCounts + <usize>((eight >> 6) & 0x3fc));
      count(scaleCounts + <usize>((eight >> 14) & 0x3fc));
      count(scaleCounts + <usize>((eight >> 22) & 0x3fc));
      count(scaleCounts + <usize>((eight >> 30) & 0x3fc));
      count(scaleCounts + <usize>((eight >> 38) & 0x3fc));
      count(scaleCounts + <usize>((eight >> 46) & 0x3fc));
      count(scaleCounts + <usize>((eight >> 54) & 0x3fc));
    }
    for (; codes < last; ++codes) count(scaleCounts + ((<usize>load<u8>(codes)) << 2));
  }
}

/**
 * Counts the bytes of a block of `rows` rows of `width` bytes. Rows are `pitch` bytes apart. Adds to eight tables of 256 u32 at
 * `counts`, whose sum is the count. Consecutive bytes go to different tables, because updates of one counter would wait for each
 * other.
 */
export function countBlock(codes: usize, rows: u32, width: u32, pitch: u32, counts: usize): void {
  for (let row: u32 = 0; row < rows; ++row) {
    let at = codes;
    const end = codes + width;
    for (; at + 8 <= end; at += 8) {
      const eight = load<u64>(at);
      count(counts + <usize>((eight << 2) & 0x3fc));
      count(counts + 1024 + <usize>((eight >> 6) & 0x3fc));
      count(counts + 2048 + <usize>((eight >> 14) & 0x3fc));
      count(counts + 3072 + <usize>((eight >> 22) & 0x3fc));
      count(counts + 4096 + <usize>((eight >> 30) & 0x3fc));
      count(counts + 5120 + <usize>((eight >> 38) & 0x3fc));
      count(counts + 6144 + <usize>((eight >> 46) & 0x3fc));
      count(counts + 7168 + <usize>((eight >> 54) & 0x3fc));
    }
    for (; at < end; ++at) count(counts + ((<usize>load<u8>(at)) << 2));
    codes += pitch;
  }
}
