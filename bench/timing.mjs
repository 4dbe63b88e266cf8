// Medians of interleaved runs. Every case runs once in each round, so that a slow phase of the host affects all cases equally and
// the ratios stay valid.

/** @typedef {{ name: string, work: number, unit: string, run: () => void, ceiling?: string, baseline?: string }} Case */

const WARM_MS = 60;
const TURN_MS = 25;

/** Milliseconds of wall time, or of this process's CPU time, which other processes disturb less. */
const wall = () => performance.now();
export function cpu() {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
}

/** Repeats `run` for about `ms` milliseconds of a clock; returns the seconds per call. */
function turn(run, ms, clock) {
  const start = clock();
  let calls = 0;
  do {
    run();
    calls++;
  } while (clock() - start < ms);
  return (clock() - start) / 1000 / calls;
}

/** The median of the values. */
export function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

/**
 * Runs the cases in turn. Returns the median and the best rate of each, in `work` units per second / 1e9.
 *
 * @param {Case[]} cases
 */
export function measure(cases, rounds = 15, clock = wall) {
  for (const { run } of cases) turn(run, WARM_MS, clock);
  const seconds = cases.map(() => []);
  for (let round = 0; round < rounds; round++) {
    for (const [i, { run }] of cases.entries()) seconds[i].push(turn(run, TURN_MS, clock));
  }
  return cases.map(({ name, work, unit }, i) => ({
    name,
    unit,
    median: work / median(seconds[i]) / 1e9,
    best: work / Math.min(...seconds[i]) / 1e9,
  }));
}
