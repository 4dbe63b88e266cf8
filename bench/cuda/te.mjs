// Steps, quantizers and norms compared with TransformerEngine's on the same GPU in the same rounds: two processes use it
// alternately. Returns nothing if python3 has no TransformerEngine.
import { Scope } from "lockstep";
import { mediansBeside, milliseconds, quotient, smallest } from "./beside.mjs";
import { kernelCases } from "./kernels.mjs";
import { openServer } from "./server.mjs";
import { FEATURES, GRAPHED, stepCases, TOKENS } from "./training.mjs";

const SIZE = [8192, 8192];
/** The required ratio of TransformerEngine's best time to ours. */
const WANTED = 1.05;

/**
 * Rows with the name, our milliseconds, TransformerEngine's milliseconds, and the ratio theirs / ours. For each side the faster
 * of direct execution and a CUDA graph counts.
 */
export async function engineRows(backend, wait, rounds) {
  const server = await openServer("te_server.py", ["engine", TOKENS, FEATURES], "TransformerEngine");
  if (!server) return undefined;
  const scope = new Scope();
  const steps = stepCases(backend);
  const plainName = (name) => name.replace(GRAPHED, "");
  const named = new Map([...steps.cases, ...kernelCases(backend, SIZE)].map((each) => [each.name, each]));
  const cases = [...named.values()].filter(({ name }) => server.cases.includes(plainName(name)));
  const names = server.cases.filter((name) => named.has(plainName(name)));
  const { ours, its } = await mediansBeside({ cases, server, names, wait, rounds });
  server.close();
  steps.dispose();
  scope.dispose();
  const plain = cases.filter(({ name }) => !name.endsWith(GRAPHED));
  return plain.map(({ name }) => {
    const our = smallest(ours(name), ours(`${name}${GRAPHED}`));
    const other = smallest(its(name), its(`${name}${GRAPHED}`));
    const isStep = name.startsWith("step");
    return {
      [`beside ${server.version}, the better of as it comes and in CUDA graphs`]: name,
      "ours, ms": milliseconds(our),
      "its, ms": milliseconds(other),
      "its / ours": quotient(other, our),
      wanted: isStep ? WANTED : undefined,
      ...(isStep
        ? {
            "ours as it comes, ms": milliseconds(ours(name)),
            "its as it comes, ms": milliseconds(its(name)),
          }
        : {}),
    };
  });
}
