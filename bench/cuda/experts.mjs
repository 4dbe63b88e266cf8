// Training steps of GroupedLinear, and permutations of tokens by their experts, compared with TransformerEngine's on the same GPU
// in the same rounds, if python3 has it.
import { functional, GroupedLinear, noGrad, Scope, tensor } from "lockstep";
import { mediansBeside, milliseconds, quotient } from "./beside.mjs";
import { initMethod, randomBf16 } from "./device.mjs";
import { RECIPES } from "./recipes.mjs";
import { openServer } from "./server.mjs";
import { captured, GRAPHED, trainingStep } from "./training.mjs";

const EXPERTS = {
  permutation: { tokens: 8192, width: 4096, experts: 8, topk: 2 },
  layers: [
    { experts: 8, rows: 16384, inward: 4096, out: 14336 },
    { experts: 64, rows: 32768, inward: 2048, out: 1408 },
  ],
};

/** The rows of each expert, unevenly: expert i has i + 1 shares, rounded down to 32 rows; the last one has the rest. */
function splitsOf(experts, rows) {
  const shares = (experts * (experts + 1)) / 2;
  const counts = Array.from(
    { length: experts - 1 },
    (_, i) => Math.floor(Math.floor((rows * (i + 1)) / shares) / 32) * 32,
  );
  return [...counts, rows - counts.reduce((sum, count) => sum + count, 0)];
}

const layerName = ({ experts, inward, out }, recipe) => `${experts} experts ${inward} to ${out}, ${recipe}`;

/** The cases of a layer of experts under each recipe. Layers and graphs are added to `owned`. */
function groupedCases(backend, { experts, rows, inward, out }, graphs, owned) {
  const splits = splitsOf(experts, rows);
  const [x, dy] = [inward, out].map((columns, i) => randomBf16(backend, [rows, columns], i + 1));
  owned.push(x, dy);
  return RECIPES.flatMap(({ name, recipe }) => {
    const layer = new GroupedLinear(backend, experts, inward, out, { bias: false, initMethod });
    owned.push(layer);
    const forward = (input, call) => layer.forward(input, splits, call);
    const step = trainingStep({ forward, parameters: layer.parameters(), x, dy, recipe });
    step(true);
    step();
    const graph = graphs ? captured(backend, step) : undefined;
    if (graph) owned.unshift(graph);
    const caseName = layerName({ experts, inward, out }, name);
    return [
      { name: caseName, run: () => step() },
      ...(graph ? [{ name: `${caseName}${GRAPHED}`, run: () => graph.replay() }] : []),
    ];
  });
}

/** The permutations, without gradients. The routing is that of te_experts.py. */
function permutationCases(backend, { tokens, width, experts, topk }, owned) {
  const x = randomBf16(backend, [tokens, width], 3);
  const entries = Int32Array.from(
    { length: tokens * topk },
    (_, i) => (Math.floor(i / topk) * 5 + (i % topk) * 3) % experts,
  );
  const routing = tensor(backend, entries, [tokens, topk], "i32");
  const probs = tensor(backend, new Float32Array(tokens * topk).fill(1 / topk), [tokens, topk]);
  const options = { mapType: "index", numExperts: experts };
  const { output, rowIdMap } = noGrad(() => functional.moePermute(x, routing, options));
  const rows = output.tensor;
  owned.push(x, routing, probs, rows, ...Object.values(rowIdMap));
  const run = (body) => () => {
    const scope = new Scope();
    noGrad(body);
    scope.dispose();
  };
  return [
    { name: "moePermute", run: run(() => functional.moePermute(x, routing, options)) },
    {
      name: "moeUnpermute",
      run: run(() => functional.moeUnpermute(rows, rowIdMap, { mergingProbs: probs })),
    },
  ];
}

/** The rows of two tables: the layers, and the permutations with their share of a device-to-device copy in the same rounds. */
export async function expertRows(
  backend,
  copies,
  wait,
  rounds,
  { graphs = true, alone = false, sizes = EXPERTS } = {},
) {
  const { permutation, layers } = sizes;
  const flat = [permutation, ...layers].flatMap((each) => Object.values(each));
  const server = alone
    ? undefined
    : await openServer("te_server.py", ["experts", ...flat], "TransformerEngine");
  const owned = [];
  const copy = copies.copyCase([permutation.tokens * permutation.topk, permutation.width]);
  const cases = [
    copy,
    ...permutationCases(backend, permutation, owned),
    ...layers.flatMap((layer) => groupedCases(backend, layer, graphs, owned)),
  ];
  const { ours, its } = await mediansBeside({ cases, server, wait, rounds });
  server?.close();
  for (const each of owned) each.dispose();
  const version = server?.version ?? "no TransformerEngine";
  const layerTable = layers.flatMap((layer) =>
    RECIPES.map(({ name }) => {
      const caseName = layerName(layer, name);
      return {
        [`GroupedLinear, forward and backward; ${version}`]: `${caseName}, ${layer.rows} rows`,
        "ours, ms": milliseconds(ours(caseName)),
        "its, ms": milliseconds(its(caseName)),
        "its / ours": quotient(its(caseName), ours(caseName)),
        "ours in a graph, ms": milliseconds(ours(`${caseName}${GRAPHED}`)),
      };
    }),
  );
  const { tokens, width, topk } = permutation;
  // each token is read once, each row read or written once
  const bytes = 2 * width * (tokens + tokens * topk);
  const copyRate = copy.bytes / ours(copy.name);
  const permutations = ["moePermute", "moeUnpermute"].map((name) => ({
    [`${tokens} tokens of ${width} bf16, ${topk} experts each; ${version}`]: name,
    "GB/s": bytes / ours(name) / 1e9,
    "of copy": bytes / ours(name) / copyRate,
    "its, GB/s": its(name) && bytes / its(name) / 1e9,
    "its / ours": quotient(its(name), ours(name)),
  }));
  return { experts: layerTable, permutations };
}
