// Allocates linear memory, by the two-level segregated fit allocator of the AssemblyScript runtime. The allocator keeps its state
// in globals of one WebAssembly instance. Therefore only the instance that owns a memory may call these functions; workers that
// share the memory never allocate.

/** Allocates `bytes` bytes, 16-byte aligned. Traps if the memory cannot grow. */
export function reserve(bytes: usize): usize {
  return heap.alloc(bytes);
}

/** Frees memory returned by `reserve`. */
export function release(pointer: usize): void {
  heap.free(pointer);
}
