// Seconds per call of asynchronous GPU work. Batches are long enough to hide the synchronization at their end. Rounds
// interleave the cases, each in another order, so that all cases run at the same clocks.

import { median } from "../timing.mjs";

const BATCH_SECONDS = 0.02;
const MAX_CALLS = 2000;

/** The values in an order that `random` draws, numbers from 0 to 1. */
export function shuffled(values, random = Math.random) {
  const keyed = values.map((value) => ({ value, key: random() }));
  return keyed.sort((a, b) => a.key - b.key).map(({ value }) => value);
}

export function batch({ run, repeat }, calls, wait) {
  wait();
  const start = performance.now();
  if (repeat) repeat(calls);
  else for (let i = 0; i < calls; i++) run(i);
  wait();
  return (performance.now() - start) / 1000 / calls;
}

/** The number of calls of a case that fill a batch. */
export function callsOf(each, wait) {
  batch(each, 2, wait);
  const once = batch(each, 5, wait);
  return Math.max(5, Math.min(MAX_CALLS, Math.ceil(BATCH_SECONDS / once)));
}

/**
 * Returns the median and the minimum seconds per call of each case, { run(i) } or { repeat(calls) }, over `rounds` batches.
 * Uncounted batches run first, until the clocks are stable.
 */
export function measureDevice(cases, wait, rounds = 11, uncounted = 0) {
  const calls = cases.map((each) => callsOf(each, wait));
  const seconds = cases.map(() => []);
  for (let round = -uncounted; round < rounds; round++) {
    for (const i of shuffled([...cases.keys()])) {
      const each = batch(cases[i], calls[i], wait);
      if (round >= 0) seconds[i].push(each);
    }
  }
  return seconds.map((each) => ({ median: median(each), best: Math.min(...each) }));
}

/**
 * The microseconds until a call returns: the median of `calls` calls after a quarter as warm-up for the JIT compiler.
 * Between groups of calls it waits for the GPU, so that the launch queue does not fill up.
 */
export function measureEnqueue(run, wait, calls = 4000) {
  const times = [];
  for (let i = 0; i < calls; i++) {
    if (i % 20 === 0) wait();
    const start = performance.now();
    run();
    times.push((performance.now() - start) * 1000);
  }
  return median(times.slice(calls / 4));
}
