// Training steps of transformer layers as in Llama that keep their activations, move them to the host, or recompute them: the
// time of a step, and the memory that is live at the end of the forward pass.
import {
  autocast,
  offloadActivations,
  RotaryPositionEmbedding,
  recompute,
  Scope,
  TransformerLayer,
  Variable,
} from "lockstep";
import { initMethod, randomBf16 } from "./device.mjs";
import { RECIPES } from "./recipes.mjs";
import { measureDevice } from "./timing.mjs";

const MODEL = { layers: 6, batch: 2, tokens: 4096, hidden: 4096, ffn: 14336, heads: 32, groups: 8 };
/** The last layer keeps its activations: its backward pass comes first. */
const WAYS = {
  kept: (forward, x) => forward(x),
  "on the host": (forward, x, isLast) => (isLast ? forward(x) : offloadActivations(() => forward(x))),
  recomputed: (forward, x) => recompute(forward, x),
};
const UNCOUNTED = 2;
const NAMES = ["bf16", "block"];

/** One row for each recipe and each way to treat activations. */
export function offloadRows(backend, wait, rounds) {
  const { layers: count, batch, tokens, hidden, ffn, heads, groups } = MODEL;
  const scope = new Scope();
  const [x, dy] = [1, 2].map((seed) => randomBf16(backend, [batch, tokens, hidden], seed));
  const rotaryPosEmb = new RotaryPositionEmbedding(backend, hidden / heads).forward(tokens);
  const layers = Array.from(
    { length: count },
    () =>
      new TransformerLayer(backend, hidden, ffn, heads, {
        ...{ numGqaGroups: groups, fuseQkvParams: true, attnInputFormat: "bshd", selfAttnMaskType: "causal" },
        ...{ normalization: "RMSNorm", activation: "swiglu", bias: false },
        ...{ hiddenDropout: 0, attentionDropout: 0, initMethod, outputLayerInitMethod: initMethod },
      }),
  );
  const parameters = layers.flatMap((layer) => layer.parameters());
  const rows = RECIPES.filter(({ name }) => NAMES.includes(name)).flatMap(({ name, recipe }) => {
    const live = new Map();
    const cases = Object.entries(WAYS).map(([way, call]) => ({
      run() {
        const stepScope = new Scope();
        const input = new Variable(x, true);
        const y = autocast({ recipe, enabled: recipe !== undefined }, () =>
          layers.reduce(
            (value, layer, i) => call((h) => layer.forward(h, { rotaryPosEmb }), value, i === count - 1),
            input,
          ),
        );
        live.set(way, backend.memoryUse().live);
        y.backward(dy);
        input.zeroGrad();
        for (const parameter of parameters) parameter.zeroGrad();
        stepScope.dispose();
      },
    }));
    const times = measureDevice(cases, wait, rounds, UNCOUNTED);
    const idle = backend.memoryUse().live;
    return Object.keys(WAYS).map((way, i) => ({
      [`${count} layers ${hidden}/${ffn}, ${batch} x ${tokens} tokens`]: `${name}, activations ${way}`,
      "a step, ms": times[i].median * 1e3,
      "of kept": times[i].median / times[0].median,
      "activations on the GPU after the forward pass, GB": (live.get(way) - idle) / 1e9,
    }));
  });
  for (const layer of layers) layer.dispose();
  scope.dispose();
  return rows;
}
