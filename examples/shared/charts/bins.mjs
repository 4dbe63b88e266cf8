/** Histograms of magnitudes: two bins for each octave. */

/**
 * The edges of bins from 2^low to 2^high. Values are compared with the edges, because a rounded logarithm could select the wrong
 * bin.
 */
export function octaveEdges(low, high) {
  return Array.from({ length: 2 * (high - low) + 1 }, (_, i) => {
    const power = 2 ** (low + Math.floor(i / 2));
    return i % 2 === 0 ? power : power * Math.SQRT2;
  });
}

/** Counts magnitudes in the bins; the first and the last bin include magnitudes beyond. Zeros are counted separately. */
export function countMagnitudes(values, edges) {
  const bins = new Array(edges.length - 1).fill(0);
  let zeros = 0;
  for (const value of values) {
    const magnitude = Math.abs(value);
    if (magnitude === 0) zeros++;
    else bins[binOf(magnitude, edges)]++;
  }
  return { bins, zeros };
}

function binOf(magnitude, edges) {
  const above = edges.findIndex((edge) => magnitude < edge);
  return above < 0 ? edges.length - 2 : Math.max(0, above - 1);
}
