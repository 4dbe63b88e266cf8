// Steps, quantizers and norms compared with TransformerEngine's on the same GPU in the same rounds: two processes take
// turns. Returns nothing if python3 has no TransformerEngine.
import { Scope } from "lockstep";
import { median } from "../timing.mjs";
import { kernelCases } from "./kernels.mjs";
import { openServer } from "./server.mjs";
import { batch, callsOf, shuffled } from "./timing.mjs";
import { FEATURES, GRAPHED, stepCases, TOKENS } from "./training.mjs";

const SIZE = [8192, 8192];
/** The required ratio of TransformerEngine's best time to ours. */
const WANTED = 1.05;

/**
 * Rows with the name, our milliseconds, TransformerEngine's milliseconds, and the ratio theirs / ours. For each side the faster
 * of direct execution and a CUDA graph counts.
 */
export async function engineRows(backend, wait, rounds) {
  const engine = await openServer("te_server.py", [TOKENS, FEATURES], "TransformerEngine");
  if (!engine) return undefined;
  const scope = new Scope();
  const steps = stepCases(backend);
  const ours = new Map([...steps.cases, ...kernelCases(backend, SIZE)].map((each) => [each.name, each]));
  const ourCases = [...ours].flatMap(([name, each]) =>
    engine.cases.includes(name.replace(GRAPHED, ""))
      ? [{ name, time: (calls) => batch(each, calls, wait), calls: callsOf(each, wait) }]
      : [],
  );
  const itsCases = [];
  for (const name of engine.cases) {
    if (!ours.has(name.replace(GRAPHED, ""))) continue;
    await engine.seconds(name, 2);
    const once = await engine.seconds(name, 5);
    const time = (calls) => engine.seconds(name, calls);
    itsCases.push({ name: `${name} of the engine`, time, calls: Math.max(5, Math.ceil(0.02 / once)) });
  }
  const all = [...ourCases, ...itsCases];
  const seconds = new Map(all.map(({ name }) => [name, []]));
  for (let round = -2; round < rounds; round++) {
    for (const { name, time, calls } of shuffled(all)) {
      const each = await time(calls);
      if (round >= 0) seconds.get(name).push(each);
    }
  }
  engine.close();
  steps.dispose();
  scope.dispose();
  const medianOf = (name) => (seconds.has(name) ? median(seconds.get(name)) : Number.POSITIVE_INFINITY);
  const plain = ourCases.filter(({ name }) => !name.endsWith(GRAPHED));
  return plain.map(({ name }) => {
    const ways = (suffix) => [medianOf(`${name}${suffix}`), medianOf(`${name}${GRAPHED}${suffix}`)];
    const [our, its] = [ways(""), ways(" of the engine")];
    const isStep = name.startsWith("step");
    return {
      [`beside ${engine.version}, the better of as it comes and in CUDA graphs`]: name,
      "ours, ms": Math.min(...our) * 1000,
      "its, ms": Math.min(...its) * 1000,
      "its / ours": Math.min(...its) / Math.min(...our),
      wanted: isStep ? WANTED : undefined,
      ...(isStep ? { "ours as it comes, ms": our[0] * 1000, "its as it comes, ms": its[0] * 1000 } : {}),
    };
  });
}
