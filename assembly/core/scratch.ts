// Rows are processed in chunks. A chunk is widened to f32 in a buffer that belongs to the calling thread.

/** The number of elements per chunk: a multiple of the 32 lanes of a sum. */
export const CHUNK: usize = 512;

/** The size in bytes of the buffer for one chunk. Exports with a `scratch` argument say how many buffers they use. */
export const BUFFER: usize = CHUNK << 2;
