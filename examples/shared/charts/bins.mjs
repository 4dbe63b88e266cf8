/** Histograms of magnitudes: two bins for each octave. */

/**
 * The edges of bins from 2^low to 2^high. Values are compared with them, so that no logarithm rounds a value into another bin.
 */
export function octaveEdges(low, high) {
  return Array.from({ length: 2 * (high - low) + 1 }, (_, i) => {
    const power = 2 ** (low + Math.floor(i / 2));
    return i % 2 === 0 ? power : power * Math.SQRT2;
  });
}

/** Counts magnitudes in the bins; those outside are in the first or last. Zeros are counted apart. */
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
