/** The f64 sums of assembly/checkpoints/statistics.ts, by their index. */
export const SUM = {
  nonzero: 0,
  full: 1,
  zeroScaled: 2,
  withNaN: 3,
  rowsNonzero: 4,
  rowsFull: 5,
  amax: 6,
  squares: 7,
  inverseAmax: 8,
  inverseSquares: 9,
  pairs: 10,
  count: 18,
} as const;
