// Cases of this library and of another one, in another process, in the same rounds: the two processes use one GPU alternately.
import { median } from "../timing.mjs";
import { batch, callsOf, shuffled } from "./timing.mjs";

const BATCH_SECONDS = 0.02;
const MIN_CALLS = 5;
/** The rounds before the measured ones, in which clocks and caches become stable. */
const UNCOUNTED = 2;

/** Our cases, each with a function that times a number of calls. */
function timedCases(cases, wait) {
  return cases.map((each) => ({
    key: `ours ${each.name}`,
    time: (calls) => batch(each, calls, wait),
    calls: callsOf(each, wait),
  }));
}

/** The cases of the other process, as above. */
async function serverCases(server, names) {
  const cases = [];
  for (const name of names) {
    await server.seconds(name, 2);
    const once = await server.seconds(name, MIN_CALLS);
    const calls = Math.max(MIN_CALLS, Math.ceil(BATCH_SECONDS / once));
    cases.push({ key: `its ${name}`, time: (count) => server.seconds(name, count), calls });
  }
  return cases;
}

/**
 * Returns two functions from the name of a case to its median seconds per call: ours, and the other library's. They return
 * undefined for a case that does not exist. Without a server, only ours exist.
 */
export async function mediansBeside({ cases, server, names = server?.cases ?? [], wait, rounds }) {
  const all = [...timedCases(cases, wait), ...(await serverCases(server, names))];
  const seconds = new Map(all.map(({ key }) => [key, []]));
  for (let round = -UNCOUNTED; round < rounds; round++) {
    for (const { key, time, calls } of shuffled(all)) {
      const each = await time(calls);
      if (round >= 0) seconds.get(key).push(each);
    }
  }
  const medianOf = (key) => (seconds.has(key) ? median(seconds.get(key)) : undefined);
  return { ours: (name) => medianOf(`ours ${name}`), its: (name) => medianOf(`its ${name}`) };
}

/** The smaller of the values that exist; undefined if none does. */
export function smallest(...values) {
  const existing = values.filter((value) => value !== undefined);
  return existing.length > 0 ? Math.min(...existing) : undefined;
}

/** The quotient of two values that exist; undefined if one does not. */
export function quotient(a, b) {
  return a !== undefined && b !== undefined ? a / b : undefined;
}

/** Milliseconds of seconds that exist. */
export function milliseconds(seconds) {
  return seconds === undefined ? undefined : seconds * 1000;
}
