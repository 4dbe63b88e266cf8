// Rows are processed in chunks, widened to f32 in buffers that belong to the calling thread.

/** Elements per chunk: a multiple of the 32 lanes of a sum. */
export const CHUNK: usize = 512;

/** Bytes of the buffer for one chunk. The exports of activation, norm, reduce and loss use up to eight buffers. */
export const BUFFER: usize = CHUNK << 2;
