// Linear memory by the two-level segregated fit allocator of the AssemblyScript runtime.
// Its bookkeeping lives in globals of one instance, so only the instance that owns a memory may call
// these; the workers that share the memory never allocate.

/** Reserves `bytes` bytes, 16-byte aligned. Traps when the memory cannot grow. */
export function reserve(bytes: usize): usize {
  return heap.alloc(bytes);
}

/** Gives back what `reserve` returned. */
export function release(pointer: usize): void {
  heap.free(pointer);
}
