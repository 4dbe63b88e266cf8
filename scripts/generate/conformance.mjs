// Generates docs/conformance.md and its pages of details from conformance/vectors: the tests that ran, the number of runs, and
// the results that they were compared with.
import { readdir, readFile } from "node:fs/promises";
import { dialectRows } from "./dialects.mjs";

const VECTORS = "conformance/vectors";

const load = async (name) => JSON.parse(await readFile(`${VECTORS}/${name}`, "utf8"));
const unique = (values) => [...new Set(values)];
const grouped = (n) => n.toLocaleString("en-US");

/** The entries of a file with one JSON object per line. If several entries have the same group and name, the last one counts. */
async function lastLines(name) {
  const text = await readFile(`${VECTORS}/${name}`, "utf8").catch(() => "");
  const entries = text.split("\n").flatMap((line) => (line ? [JSON.parse(line)] : []));
  const last = new Map(entries.map((entry) => [`${entry.group} ${entry.name}`, entry]));
  return [...last.values()].sort((a, b) => (a.name < b.name ? -1 : 1));
}

/** A Markdown table. */
function table(head, rows) {
  const line = (cells) => `| ${cells.join(" | ")} |`;
  return [line(head), line(head.map(() => "---")), ...rows.map(line)].join("\n");
}

/** One row per format: its encodings, their inputs, and the encodings whose digests CUDA's own sweeps confirm. */
function exhaustionTable(results, cuda) {
  const rows = unique(results.map(({ format }) => format)).map((format) => {
    const ofFormat = results.filter((each) => each.format === format);
    const inputs = ofFormat.reduce((sum, each) => sum + each.inputs, 0);
    const confirmed = cuda.filter((run) => run.format === format);
    return [
      format,
      ofFormat.length,
      grouped(inputs),
      confirmed.map((run) => `${run.rounding} ${run.overflow}`).join(", "),
    ];
  });
  const total = results.reduce((sum, { inputs }) => sum + inputs, 0);
  return table(
    [
      "format",
      "rounding x overflow",
      "inputs",
      "the same digests as CUDA's conversions over all 2^32 inputs",
    ],
    [...rows, ["all", results.length, grouped(total), `${cuda.length}`]],
  );
}

/** A noun for the entries of each kind of vector file. */
const KINDS = {
  tables: "tables of codes",
  cases: "products",
  runs: "sweeps of all 2^32 inputs",
  results: "results of operations",
  training: "training runs",
  quantizations: "quantizations",
  nvfp4: "quantizations",
  functions: "results of norms and activations",
  modules: "programs of modules",
  layers: "layers, stage by stage",
  layouts: "packed layouts",
  texts: "texts as tokens",
};

async function witnessTable() {
  const names = (await readdir(VECTORS)).filter((name) => name.endsWith(".json")).sort();
  const rows = [];
  for (const name of names) {
    const file = await load(name);
    const { origin } = file;
    if (typeof origin !== "object") continue;
    const [kind, entries] = Object.entries(file).find(([key]) => KINDS[key]);
    const noun = entries.length === 1 ? KINDS[kind].replace(/^(\w+)s\b/, "$1") : KINDS[kind];
    rows.push([`\`${name}\``, origin.project, origin.version, `${entries.length} ${noun}`]);
  }
  return table(["file", "witness", "version", "holds"], rows);
}

/** One row per task: its recipes, recorded steps and states. */
function trainingTable({ training }) {
  const rows = unique(training.map(({ task }) => task)).map((task) => {
    const runs = training.filter((run) => run.task === task);
    return [task, runs.map(({ recipe }) => recipe).join(", "), runs[0].hashes.length];
  });
  return table(["task", "recipes", "steps of each"], rows);
}

/** The number of elements in the results that are recorded as hashes. They are equal, or the tests fail. */
function elementsOf(value) {
  if (Array.isArray(value)) return value.reduce((sum, each) => sum + elementsOf(each), 0);
  if (typeof value !== "object" || value === null) return 0;
  if (value.sha256) return value.shape.reduce((product, size) => product * size, 1);
  return Object.values(value).reduce((sum, each) => sum + elementsOf(each), 0);
}

/** One row per kind of program: their number, and the number of elements in their results that are bitwise equal. */
function engineTable(quantizations, nvfp4, modules) {
  const row = (name, cases) => [name, cases.length, grouped(elementsOf(cases)), 0];
  const by = (all, key) =>
    unique(all.map(key)).map((name) => [name, all.filter((each) => key(each) === name)]);
  return table(
    ["TransformerEngine's", "cases", "elements compared", "differing"],
    [
      ...by(quantizations, ({ quantizer }) => `${quantizer} quantizer`).map((each) => row(...each)),
      row("NVFP4 quantizer, its reference in PyTorch", nvfp4),
      ...by(modules, ({ module, recipe }) => `${module}, ${recipe}`).map((each) => row(...each)),
    ],
  );
}

/** One row for all quantizers, the NVFP4 reference, and all modules. */
function engineSummary(quantizations, nvfp4, modules) {
  const row = (name, cases) => [name, cases.length, grouped(elementsOf(cases)), 0];
  return table(
    ["TransformerEngine's", "cases", "elements compared", "differing"],
    [
      row("quantizers", quantizations),
      row("NVFP4 quantizer, its reference in PyTorch", nvfp4),
      row("modules, forward and backward", modules),
    ],
  );
}

/** The shares of elements that differ, over all results. */
function distanceSummary(distances) {
  const all = Object.values(distances);
  const total = (key) => all.reduce((sum, each) => sum + each[key], 0);
  if (total("differing") === 0) return "no element differs";
  const share = (key) => `${Number(((100 * total(key)) / total("elements")).toPrecision(2))} %`;
  return `${share("differing")} of the elements differ, ${share("further")} by more than one unit of the last place`;
}

function distanceTable(distances) {
  const share = (part, total) => `${((100 * part) / total).toFixed(1)} %`;
  return table(
    ["result", "elements", "differing", "by more than one ulp", "at most, ulp"],
    Object.entries(distances).map(([name, { elements, differing, further, most }]) => [
      name,
      grouped(elements),
      share(differing, elements),
      share(further, elements),
      grouped(most),
    ]),
  );
}

const RECIPES = ["bf16", "delayed", "current", "block"];

/** The results of stages of layers: [name, recipe, distances]. */
function stagesOf(layers) {
  return Object.entries(layers).map(([key, each]) => [...key.split(/, (?=\w+$)/), each]);
}

/** One row for each result that is equal in every bit: the elements compared under each recipe. */
function equalStageTable(layers) {
  const equal = stagesOf(layers).filter(([, , { differing }]) => differing === 0);
  const rows = unique(equal.map(([name]) => name)).map((name) => [
    name,
    ...RECIPES.map((recipe) => {
      const found = equal.find(([own, of]) => own === name && of === recipe);
      return found ? grouped(found[2].elements) : "";
    }),
  ]);
  return table(["result", ...RECIPES], rows);
}

/** One row for each result that differs: its distance from ours, and the distances of both from float64. */
function stageTable(layers) {
  const error = (of) => (of ? `${of.mean.toExponential(2)}, ${of.max.toExponential(2)}` : "");
  const rows = stagesOf(layers)
    .filter(([, , { differing }]) => differing > 0)
    .map(([name, recipe, each]) => [
      `${name}, ${recipe}`,
      ...[each.elements, each.differing - each.zeros, each.zeros, each.further, each.most].map(grouped),
      ...(each.nearer ? [`${grouped(each.nearer.ours)}, ${grouped(each.nearer.theirs)}`] : [""]),
      ...[error(each.ours), error(each.theirs), each.farther ?? ""],
    ]);
  const head = ["elements", "differing", "zeros of the other sign", "by more than one ulp", "at most, ulp"];
  const errors = ["nearer: ours, its", "our errors: mean, largest", "its errors: mean, largest"];
  return table(["result", ...head, ...errors, "why ours is farther"], rows);
}

/**
 * The numbers of results of stages that are equal, that differ, and that are farther in ours, and the numbers of their elements.
 */
function stageSummary(layers) {
  const all = stagesOf(layers);
  const row = (name, of) => {
    const elements = of.reduce((sum, [, , each]) => sum + each.elements, 0);
    const differing = of.reduce((sum, [, , each]) => sum + each.differing - each.zeros, 0);
    return [name, of.length, grouped(elements), grouped(differing)];
  };
  const equal = all.filter(([, , { differing }]) => differing === 0);
  const differing = all.filter(([, , each]) => each.differing > 0);
  const isFused = ([name]) => name.startsWith("attention: ");
  return table(
    ["results of stages, by recipe", "number", "elements", "differing"],
    [
      row("equal in every bit", equal),
      row(
        "that differ, without attention",
        differing.filter((each) => !isFused(each)),
      ),
      row("attention as one operation", differing.filter(isFused)),
      row(
        "of those that differ, ours farther from float64",
        differing.filter(([, , each]) => each.farther),
      ),
    ],
  );
}

/** A run of the GPU tests: a summary for the page, and the rows of a page of details. */
function gpuSections(entries) {
  if (entries.length === 0) return { page: "No run of the suite on a GPU is recorded.", details: "" };
  const { device, seed } = entries[0];
  const { driver } = entries.find((each) => each.driver) ?? {};
  const inGroup = (group) => entries.filter((each) => each.group === group);
  const rows = (group) => inGroup(group).map(({ name, runs }) => [name, grouped(runs)]);
  const laws = inGroup("laws").map(({ name, runs, pairs, rarest }) => [
    name,
    grouped(runs),
    pairs ?? "",
    rarest ?? "",
  ]);
  const sweeps = inGroup("sweep");
  const codes = sweeps.reduce((sum, { runs }) => sum + runs, 0);
  const declined = new Map();
  for (const { name, declined: reasons = [] } of entries)
    for (const { reason, count } of reasons) {
      const key = reason.replace(/\b\d+\b/g, "N");
      declined.set(key, [...(declined.get(key) ?? []), { name, count }]);
    }
  const reasons = [...declined].map(([reason, each]) => [
    reason,
    grouped(each.reduce((sum, { count }) => sum + count, 0)),
    unique(each.map(({ name }) => name)).join(", "),
  ]);
  const origin = `${device}${driver ? `, driver ${driver}` : ""}; seed ${seed}.`;
  const summary = [
    ["laws, inputs aimed at edge cases", ...summaryOf(inGroup("laws"))],
    ["laws, large inputs", ...summaryOf(inGroup("large"))],
    ["products of real sizes, one split and cuBLASLt's choice", ...summaryOf(inGroup("gemm"))],
    ["sweeps of all f32 inputs: codes", sweeps.length, grouped(codes), ""],
  ];
  const page = `${origin} The tests fill every output with poison before each call and compare bits. No result differs.

${table(["tests", "number", "inputs", "fewest inputs of one"], summary)}

Every pair of option values of a law occurred in at least ${count(Math.min(...inGroup("laws").flatMap(({ rarest }) => rarest ?? [])), "input")}. The GPU refused ${grouped(reasons.length)} kinds of calls.
[conformance-gpu.md](conformance-gpu.md) lists each law, product and refusal.`;
  const details = `${origin} [conformance.md](conformance.md#on-a-gpu) has the summary.

## Laws

${table(["law, inputs aimed at edge cases", "inputs", "pairs of option values", "inputs of the rarest pair"], laws)}

${table(["law, large inputs", "inputs"], rows("large"))}

## Products

${table(["products of real sizes, one split and cuBLASLt's choice", "products"], rows("gemm"))}

## Refused calls

${reasons.length > 0 ? table(["reason", "inputs", "of"], reasons) : "None."}
`;
  return { page, details };
}

const count = (n, noun) => `${grouped(n)} ${noun}${n === 1 ? "" : "s"}`;

/** The number of tests, their inputs, and the fewest inputs of one test. */
function summaryOf(entries) {
  const runs = entries.map((each) => each.runs);
  return [entries.length, grouped(runs.reduce((sum, each) => sum + each, 0)), grouped(Math.min(...runs))];
}

export async function conformanceFiles(command) {
  const results = await load("exhaustive.json").catch(() => []);
  const sweep = await load("sweep-digests.json");
  const training = await load("training.json");
  const { origin: engine, quantizations } = await load("te-quantizations.json");
  const { nvfp4 } = await load("te-nvfp4.json");
  const { modules } = await load("te-modules.json");
  const distances = await load("te-distances.json");
  const { origin: layersOrigin, layers } = await load("te-layers.json");
  const gpu = await lastLines("gpu-conformance.jsonl");
  const cuda = [
    ...(await load("cuda-digests.json")).runs,
    ...(await load("cuda-digests-directed.json")).runs,
  ];
  const gpuPages = gpuSections(gpu);
  const marker = `<!-- Generated by \`${command}\` from ${VECTORS}. -->`;
  const text = `<!-- Generated by \`${command}\` from ${VECTORS}. -->
# What is checked

Lockstep is checked in three ways: by an oracle, a second implementation in exact arithmetic; by recorded results of other projects and
chips; and by a comparison of the CUDA backend with the reference on a GPU. \`npm test\` runs the first two on any machine. Comparisons are
bitwise; in wide types all NaNs are equal. Every figure on this page comes from the files in \`${VECTORS}\`.

## All inputs

\`npm run test:slow\` encodes all 2^32 bit patterns of f32 under every rounding mode and the overflow policies \`saturate\` and \`nonfinite\`.
Integers have one policy, and \`propagate\` takes each code from these two. It compares each code with the oracle's step function, which is
computed from exact decision points in rational arithmetic (\`conformance/oracle/core/scalar.ts\`).
Under stochastic rounding the code has to be one of the two neighbours of the input. The table counts encodings
for which no code differs.

${exhaustionTable(results, cuda)}

The digests of all ${sweep.runs.length} encodings, 256 chunks each, are committed in \`sweep-digests.json\`
(\`node scripts/sweep-digests.mjs\`; [cli.md](cli.md#sweep) defines a digest). \`npm test\` recomputes the chunks at the edges of each
format and compares them. \`lockstep sweep\` prints digests for comparison with any other implementation.

In \`npm test\`, \`conformance/tests/laws/every-code-and-product-is-exact.test.ts\` decodes every code of every format, encodes each finite
value under every rounding, multiplies all 2^16 pairs of e4m3 and of e5m2 codes, and compares the results with exact arithmetic.

## On a GPU

On a machine with a GPU this command compares the CUDA backend with the reference and records the counts of this page:

\`\`\`sh
RECORD=conformance/vectors/gpu-conformance.jsonl npx vitest run --project gpu
\`\`\`

With \`RUNS=10000 CHUNKS=256\` before the command and \`--testTimeout 900000\` after it, it runs 10,000 inputs for each law, and complete
sweeps. \`VITEST_MAX_WORKERS=2\` before it limits the test files that run at once.

\`h100-results.json\` and \`h200-results.json\` have recorded results of these GPUs, products with their plans. \`npm test\` compares the
reference with them on any machine (\`conformance/tests/witness/frozen.test.ts\`).

Every allocation of these tests, temporaries of operations included, lies between two fences, which are checked when it is freed. The
workspace of a product has a fence at its end (\`LOCKSTEP_FENCES\`). Every loop of the kernels and of the addon whose number of iterations is
not constant reaches a second iteration in these tests. An instrumented build shows that:

\`\`\`sh
node scripts/build-cuda.mjs --turns
TURNS=out/turns LOCKSTEP_ADDON=$PWD/build/turns/build/Release/lockstep.node npx vitest run --project gpu
node scripts/turns/report.mjs out/turns
\`\`\`

The report fails for loops that reach no second iteration, unless \`scripts/turns/exceptions.mjs\` has the reason. It also lists branches
that always go the same way.

${gpuPages.page}

## Training

\`training.json\` has ${training.training.length} recorded runs: every loss, and after every step the hash of all parameters, master parameters, optimizer
buffers, scales and amax histories. An H200 gives the same hashes (\`conformance/tests/cuda/training.test.ts\`). \`npm test\` repeats the
first steps of some runs, also from a checkpoint, and of runs under NVFP4 with 1 or 3 threads; with \`LOCKSTEP_TESTS=full\` the
first steps of all runs. \`npx vitest run --config vitest.slow.config.ts conformance/tests/slow/training.test.ts\` repeats all steps.

${trainingTable(training)}

## TransformerEngine itself

\`scripts/witness/te_vectors.py\` recorded results of ${engine.version} on an ${engine.gpu}. \`npm test\` compares the
reference with a sample of them and \`LOCKSTEP_TESTS=full npm test\` with all (\`conformance/tests/te/*.test.ts\`); every bit agrees. The
recordings contain

- the quantizers with all their options, over random values, all bit patterns, tiles of zeros, NaN, subnormals and infinities;
- \`Linear\` in seven sizes;
- \`LayerNormLinear\` and \`LayerNormMLP\` on inputs of 1 and -1, whose norm is exact, under \`relu\`, \`srelu\` and their gated forms only;
- several microbatches with cached weights, and gradients that are added to main gradients;
- the scales and histories of delayed scaling over five iterations.

${engineSummary(quantizations, nvfp4, modules)}

[conformance-te.md](conformance-te.md) has one row for each quantizer, module and recipe. Two differences are deliberate:

- The padding of block scales is zero here and undefined in TransformerEngine.
- When a gradient is added to a main gradient under per-tensor FP8, cuBLASLt rounds the product to f32 and then adds. The test does the
  same. The backends of this project round once.

This project defines norms and activations itself ([numerics.md](numerics.md) §7), and their sums have another order than
TransformerEngine's. On the same inputs
${distanceSummary(distances.functions)}. In whole modules whose gradient passes through a norm, ${distanceSummary(distances.modules)}.
Large distances occur at results near zero, where a formula cancels. [conformance-te.md](conformance-te.md#distances) lists all.

\`scripts/witness/te_layers.py\` recorded ${layers.length} whole layers on an ${layersOrigin.gpu}, kernel by kernel, on random inputs: a transformer layer as
in Llama and one as in GPT, \`LayerNormLinear\`, and \`LayerNormMLP\` under gelu, silu, swiglu and geglu, each under bf16, delayed, current
and block scaling. \`conformance/tests/te/layers.test.ts\` computes each stage of the forward and the backward pass from its recorded
inputs:

${stageSummary(distances.layers)}

Quantizers, products, rotary embeddings, the softmax, residual sums and bias gradients of quantized layers are equal in every bit. Rotary
embeddings are so with the cosines and sines of CUDA's \`sincosf\`, which the test computes as its PTX does. With the tables of this
project, which are the nearest f32 numbers, a few elements differ by one rounding. [conformance-te.md](conformance-te.md#whole-layers) has
a row for each result, with the distances of both from float64 and the reason where ours is farther.

## Witnesses

\`npm test\` compares the reference with recorded results of other projects, and does not need these projects. \`scripts/witness\` has the
script that made each recording, and says where its conventions differ.

${await witnessTable()}

## Dialects of other libraries

\`conformance/vectors/dialects\` has what the quantizers of other libraries returned on a CPU: codes, scales of every level, and the values
that the library itself reads from them.

- The inputs are drawn again by each test, from integers (\`conformance/tests/witness/dialects/draws.ts\`): a block for each of the 32,640
  finite bf16 amaxes; f32 amaxes up to 64 units in the last place around 2^k, 1.5 * 2^k, 1.75 * 2^k, 1.875 * 2^k and 1.9375 * 2^k; ties and
  their neighbours; zeros of both signs; subnormals; the largest numbers; outliers; NaN; infinities; ragged shapes.
- A file has the SHA-256 of each result, all scales, some rows of the codes and values, and CRC-32s of runs of rows, by which a test finds
  where results differ. If a library raised an exception, the file has the exception.
- \`facts\` describes each dialect in words. A model of it in numpy (\`scripts/witness/dialects/*_models.py\`), which shares no code with
  this library, was compared with the library; the last column says for how many cases the bits agree.

${table(["package", "version", "dialects", "elements", "cases with the model's bits"], await dialectRows())}

\`scripts/witness/dialects/record_all.sh\` makes the files. On a CPU, microxcaling returns no codes, FBGEMM and DeepGEMM's FP8 no values,
gguf-py no codes of NVFP4, and gpt-oss's MXFP4 only values. Triton kernels and CUDA extensions were not run.

## Laws

A law compares an operation with its oracle, or states a property that needs no oracle: encode is monotone, no other code is nearer to the
input than the result, a scale is the smallest that fits, a tie goes to the even code. The drawn inputs favour ties and their neighbours,
the edges of subnormals, amaxes at which a scale changes, blocks of zeros, NaN and infinities, and sizes of 0, 1 and one more than a tile.

\`npm test\` runs the laws of \`lockstep/conformance\` on one of 32 inputs, and takes about one of 64 cases of each long table
and of the recorded results. Its last line has both numbers of cases. \`SEED=7 npm test\` draws others, and \`LOCKSTEP_TESTS=full npm test\`, as CI
runs it, takes all. \`lockstep conform --runs N --seed S\` runs the laws on any number of inputs.

\`conformance/tests/laws/negative-controls.test.ts\` has negative controls: wrong variants, each of which a named law has to reject.

## What is not confirmed

The \`ada-*\` and \`blackwell-*\` datapaths are published models. They agree with recorded results of the simulator mmasim, and \`ada-fp8\`
also with recorded products of a GeForce RTX 4060. This project has not run them on such hardware, so \`supports\` returns \`unverified\` for
them. No other project confirms rounding \`toOdd\`: only the oracle and the laws test it.
`;
  const engineDetails = `${marker}
# TransformerEngine: every case

${engine.version} on an ${engine.gpu}. [conformance.md](conformance.md#transformerengine-itself) has the summary.

## Results that are equal in every bit

${engineTable(quantizations, nvfp4, modules)}

## Distances

Norms and activations, in units of the last place of the result's type:

${distanceTable(distances.functions)}

Modules whose gradient passes through a norm:

${distanceTable(distances.modules)}

## Whole layers

${layersOrigin.version}, ${layersOrigin.gpu}. \`conformance/tests/te/layers.test.ts\` computes each stage from its recorded inputs;
\`RECORD_DISTANCES=1 LOCKSTEP_TESTS=full npx vitest run --project reference conformance/tests/te/layers.test.ts\` records its counts.

### Results that are equal in every bit

The number of elements compared under each recipe. A result can differ under another recipe.

${equalStageTable(distances.layers)}

### Results that differ

- An error is the distance from a float64 computation of the stage from the same inputs, divided by the root mean square of the float64
  result. An FP8 result counts as its codes times its scale, rounding included.
- *Nearer* counts the elements of which only ours, or only TransformerEngine's, is the nearer one to float64.
- \`attention\` compares our attention, which is one operation, with the unfused attention, which rounds scores, probabilities and their
  gradients to bf16. The products of the latter are equal in every bit.
- The gradient of the softmax differs in the sign of zeros of masked elements only.

${stageTable(distances.layers)}
`;
  return {
    "docs/conformance.md": text,
    "docs/conformance-gpu.md": `${marker}\n# The tests on a GPU: every law\n\n${gpuPages.details}`,
    "docs/conformance-te.md": engineDetails,
  };
}
