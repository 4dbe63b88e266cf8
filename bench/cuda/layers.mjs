// A training step of a transformer layer as in Llama, compared with TransformerEngine's on the same GPU in the same rounds, if
// python3 has it.
import { RotaryPositionEmbedding, TransformerLayer } from "lockstep";
import { mediansBeside, milliseconds, quotient, smallest } from "./beside.mjs";
import { initMethod, randomBf16 } from "./device.mjs";
import { RECIPES } from "./recipes.mjs";
import { openServer } from "./server.mjs";
import { captured, GRAPHED, trainingStep } from "./training.mjs";

const LAYER = { batch: 2, tokens: 4096, hidden: 4096, ffn: 14336, heads: 32, groups: 8 };

/** The cases of a layer under each recipe, run directly and as captured graphs, and a function that disposes of all. */
function layerCases(backend, { batch, tokens, hidden, ffn, heads, groups }, graphs) {
  const [x, dy] = [1, 2].map((seed) => randomBf16(backend, [batch, tokens, hidden], seed));
  const rotaryPosEmb = new RotaryPositionEmbedding(backend, hidden / heads).forward(tokens);
  const owned = [x, dy, rotaryPosEmb.cos, rotaryPosEmb.sin];
  const cases = RECIPES.flatMap(({ name, recipe }) => {
    const layer = new TransformerLayer(backend, hidden, ffn, heads, {
      ...{ numGqaGroups: groups, fuseQkvParams: true, attnInputFormat: "bshd", selfAttnMaskType: "causal" },
      ...{
        normalization: "RMSNorm",
        activation: "swiglu",
        bias: false,
        hiddenDropout: 0,
        attentionDropout: 0,
      },
      ...{ initMethod, outputLayerInitMethod: initMethod },
    });
    owned.push(layer);
    const forward = (input, call) => layer.forward(input, { ...call, rotaryPosEmb });
    const step = trainingStep({ forward, parameters: layer.parameters(), x, dy, recipe });
    step(true);
    step();
    const graph = graphs ? captured(backend, step) : undefined;
    if (graph) owned.unshift(graph);
    return [
      { name: `layer ${name}`, run: () => step() },
      ...(graph ? [{ name: `layer ${name}${GRAPHED}`, run: () => graph.replay() }] : []),
    ];
  });
  const dispose = () => {
    for (const each of owned) each.dispose();
  };
  return { cases, dispose };
}

/** One row for each recipe: the milliseconds of a step. For each library, the faster of direct execution and a CUDA graph. */
export async function layerRows(backend, wait, rounds, { graphs = true, alone = false, layer = LAYER } = {}) {
  const sizes = [...Object.values(layer), Number(graphs)];
  const server = alone
    ? undefined
    : await openServer("te_server.py", ["layers", ...sizes], "TransformerEngine");
  const { cases, dispose } = layerCases(backend, layer, graphs);
  const { ours, its } = await mediansBeside({ cases, server, wait, rounds });
  server?.close();
  dispose();
  const { batch, tokens, hidden, ffn, heads, groups } = layer;
  const title = `TransformerLayer ${hidden}/${ffn}, ${heads}/${groups} heads, ${batch} x ${tokens} tokens; ${server?.version ?? "no TransformerEngine"}`;
  return RECIPES.map(({ name }) => {
    const ways = (of) => [of(`layer ${name}`), of(`layer ${name}${GRAPHED}`)];
    const [our, other] = [ways(ours), ways(its)];
    return {
      [title]: name,
      "ours, ms": milliseconds(smallest(...our)),
      "its, ms": milliseconds(smallest(...other)),
      "its / ours": quotient(smallest(...other), smallest(...our)),
      "ours as it comes, ms": milliseconds(our[0]),
      "its as it comes, ms": milliseconds(other[0]),
      "ours in a graph, ms": milliseconds(our[1]),
      "its in graphs, ms": milliseconds(other[1]),
    };
  });
}
