/** Random sources of dropout. The second run of a recomputed region uses the sources of its first run. */
import type { RandomState } from "../../quantizers/random-state.js";
import type { RandomSource } from "../../random.js";
import { differs } from "../recompute-call.js";
import { currentPhase, type RecomputeCalls } from "../recompute-phase.js";

/** The sources that each layer drew in the first run of a region, in order of its calls. */
const sourcesByRegion = new WeakMap<RecomputeCalls, Map<object, RandomSource[]>>();

function randomSources(calls: RecomputeCalls, layer: object): RandomSource[] {
  const layers = sourcesByRegion.get(calls) ?? new Map<object, RandomSource[]>();
  sourcesByRegion.set(calls, layers);
  const sources = layers.get(layer) ?? [];
  layers.set(layer, sources);
  return sources;
}

/**
 * Returns the next source of `random`. In the second run of a recomputed region, returns the source of the same call in the
 * first run.
 */
export function drawFor(layer: object, random: RandomState): RandomSource {
  const phase = currentPhase();
  if (!phase) return random.next();
  if (phase.pass === "first") {
    const source = random.next();
    randomSources(phase.calls, layer).push(source);
    return source;
  }
  const source = randomSources(phase.calls, layer).shift();
  if (!source) throw differs("drops elements that the first did not");
  if (phase.next) randomSources(phase.next, layer).push(source);
  return source;
}
