// Rows are worked in chunks widened to f32, in buffers that belong to the calling thread.

/** Elements of a chunk: a multiple of the 32 lanes of a reduction. */
export const CHUNK: usize = 512;

/** Bytes of the buffer of one chunk; the exports of activation, norm, reduce and loss work in up to eight. */
export const BUFFER: usize = CHUNK << 2;
