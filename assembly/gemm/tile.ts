// The operands and results of one step of a product: a block of rows of X by a panel of W.

/** The inputs of a step function, and the accumulators that it adds to. */
@unmanaged
export class Tile {
  /** The packed rows of X, and the packed columns of W, for the k's of the step, with their exponents. */
  x: usize;
  xe: usize;
  w: usize;
  we: usize;
  /** The number of k's. */
  step: u32;
  rows: u32;
  /** The accumulators of the rows, 64 bytes per row. */
  states: usize;
  /** Scratch memory: ALIGNED_BYTES bytes. */
  scales: usize;
}

/** The size of a Tile in bytes. */
export const TILE_BYTES: usize = 32;
