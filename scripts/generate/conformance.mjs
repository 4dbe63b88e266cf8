// docs/conformance.md: what was checked, how often and against what, counted from conformance/vectors.
import { readdir, readFile } from "node:fs/promises";

const VECTORS = "conformance/vectors";

const load = async (name) => JSON.parse(await readFile(`${VECTORS}/${name}`, "utf8"));
const unique = (values) => [...new Set(values)];
const grouped = (n) => n.toLocaleString("en-US");

/** The entries of a file of lines, the last of each group and name, in order. */
async function lastLines(name) {
  const text = await readFile(`${VECTORS}/${name}`, "utf8").catch(() => "");
  const entries = text.split("\n").flatMap((line) => (line ? [JSON.parse(line)] : []));
  const last = new Map(entries.map((entry) => [`${entry.group} ${entry.name}`, entry]));
  return [...last.values()].sort((a, b) => (a.name < b.name ? -1 : 1));
}

/** Rows of a Markdown table. */
function table(head, rows) {
  const line = (cells) => `| ${cells.join(" | ")} |`;
  return [line(head), line(head.map(() => "---")), ...rows.map(line)].join("\n");
}

/** One row a format: its encodings, their inputs, and those whose digests CUDA's own sweeps confirm. */
function exhaustionTable(results, cuda) {
  const rows = unique(results.map(({ format }) => format)).map((format) => {
    const own = results.filter((each) => each.format === format);
    const inputs = own.reduce((sum, each) => sum + each.inputs, 0);
    const confirmed = cuda.filter((run) => run.format === format);
    return [
      format,
      own.length,
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

/** What the entries of a vector file are. */
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
};

async function witnessTable() {
  const names = (await readdir(VECTORS)).filter((name) => name.endsWith(".json")).sort();
  const rows = [];
  for (const name of names) {
    const file = await load(name);
    const { origin } = file;
    if (typeof origin !== "object") continue;
    const [kind, entries] = Object.entries(file).find(([key]) => KINDS[key]);
    rows.push([`\`${name}\``, origin.project, origin.version, `${entries.length} ${KINDS[kind]}`]);
  }
  return table(["file", "witness", "version", "holds"], rows);
}

/** A row for each task: its recipes, steps and states that are recorded. */
function trainingTable({ training }) {
  const rows = unique(training.map(({ task }) => task)).map((task) => {
    const own = training.filter((run) => run.task === task);
    return [task, own.map(({ recipe }) => recipe).join(", "), own[0].hashes.length];
  });
  return table(["task", "recipes", "steps of each"], rows);
}

/** Elements of results that were recorded as hashes, which are equal or the suite fails. */
function elementsOf(value) {
  if (Array.isArray(value)) return value.reduce((sum, each) => sum + elementsOf(each), 0);
  if (typeof value !== "object" || value === null) return 0;
  if (value.sha256) return value.shape.reduce((product, size) => product * size, 1);
  return Object.values(value).reduce((sum, each) => sum + elementsOf(each), 0);
}

/** A row for each kind of program: how many, and how many elements of their results agree to the bit. */
function engineTable(quantizations, nvfp4, modules) {
  const row = (name, own) => [name, own.length, grouped(elementsOf(own)), 0];
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

function distanceTable(distances) {
  const share = (part, whole) => `${((100 * part) / whole).toFixed(1)} %`;
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

/** What one run of the GPU suite came to: a row for each law, the sums of the sweeps, and what was declined. */
function gpuSection(entries) {
  if (entries.length === 0) return "No run of the suite on a GPU is recorded.";
  const { device, seed } = entries[0];
  const { driver } = entries.find((each) => each.driver) ?? {};
  const of = (group) => entries.filter((each) => each.group === group);
  const rows = (group) => of(group).map(({ name, runs }) => [name, grouped(runs)]);
  const laws = of("laws").map(({ name, runs, pairs, rarest }) => [
    name,
    grouped(runs),
    pairs ?? "",
    rarest ?? "",
  ]);
  const sweeps = of("sweep");
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
  return `${device}${driver ? `, driver ${driver}` : ""}; seed ${seed}. Every output was poisoned first, every comparison is of bits, and nothing differed.

${table(["law, inputs aimed at edges", "inputs", "pairs of option values", "the rarest, times"], laws)}

${table(["law, large inputs", "inputs"], rows("large"))}

${table(["products of real sizes, one part and cuBLASLt's choice", "products"], rows("gemm"))}

Sweeps of all f32 inputs: ${sweeps.length} encodings, ${grouped(codes)} codes, the committed digests.

${reasons.length > 0 ? `What the GPU declined, with its reason:\n\n${table(["reason", "inputs", "of"], reasons)}` : "The GPU declined nothing."}`;
}

export async function conformanceFiles(command) {
  const results = await load("exhaustive.json").catch(() => []);
  const sweep = await load("sweep-digests.json");
  const training = await load("training.json");
  const { origin: engine, quantizations } = await load("te-quantizations.json");
  const { nvfp4 } = await load("te-nvfp4.json");
  const { modules } = await load("te-modules.json");
  const distances = await load("te-distances.json");
  const gpu = await lastLines("gpu-conformance.jsonl");
  const cuda = [
    ...(await load("cuda-digests.json")).runs,
    ...(await load("cuda-digests-directed.json")).runs,
  ];
  const text = `<!-- Generated by \`${command}\` from ${VECTORS}. -->
# What was checked

Every figure on this page is counted from the files in \`${VECTORS}\`. Comparisons are bit for bit, NaN as a class.

## All inputs

Every f32 bit pattern, 2^32 of them, encoded under every rounding mode and overflow policy, and each code compared with the
oracle's step function, which is computed from exact decision points in rational arithmetic
(\`conformance/oracle/core/scalar.ts\`). Under stochastic rounding the code must be one of the two neighbours of the input. Command:
\`npm run test:slow\`, which counts an encoding here once none of its 2^32 codes differs.

${exhaustionTable(results, cuda)}

The digests of all ${sweep.runs.length} encodings, 256 chunks each, are committed in \`sweep-digests.json\`
(\`node scripts/sweep-digests.mjs\`; definition in [cli.md](cli.md)); the suite recomputes chunks at each format's edges and
compares them, and \`lockstep sweep\` prints them for comparison with any other implementation.

\`conformance/tests/core/exhaustion.test.ts\` decodes every code of every format, encodes each finite value back under every rounding, and
multiplies all 2^16 pairs of e4m3 and of e5m2 codes, against exact arithmetic, with every \`npm test\`.

## On a GPU

The CUDA backend against the reference: \`RECORD=conformance/vectors/gpu-conformance.jsonl npx vitest run --project gpu\` on a machine
with a GPU; \`RUNS=10000 CHUNKS=256\` in front of it, and \`--testTimeout 900000\`, try as many inputs of each law and whole sweeps. Results of that GPU are frozen in \`h200-results.json\`, products with the plans it chose,
and \`npm test\` holds the reference to them on any machine (\`conformance/tests/witness/frozen.test.ts\`).

Every allocation of these tests, an operation's own included, lies between fences that are looked at when it is given back; a
product's workspace ends at one (\`LOCKSTEP_FENCES\`). Every loop of the kernels and the addon whose number of turns is not
written in it takes a second turn in the default suite. A build from marked sources says so:

\`\`\`sh
node scripts/build-cuda.mjs --turns
TURNS=out/turns LOCKSTEP_ADDON=$PWD/build/turns/build/Release/lockstep.node npx vitest run --project gpu
node scripts/turns/report.mjs out/turns
\`\`\`

The report names loops that took none and fails for them, unless \`scripts/turns/exceptions.mjs\` has the reason; it lists
branches that went one way only.

${gpuSection(gpu)}

## Training

${training.training.length} runs are recorded in \`training.json\`: every loss, and after every step the hash of all parameters, master parameters, optimizer
buffers, scales and amax histories. An H200 gives the same (\`conformance/tests/cuda/training.test.ts\`). \`npm test\` computes the first steps of each again, with 1, 2 and 3 threads
and from a checkpoint; \`npx vitest run --config vitest.slow.config.ts conformance/tests/slow/training.test.ts\` all of them.

${trainingTable(training)}

## TransformerEngine itself

What ${engine.version} gave on an ${engine.gpu}, recorded by \`scripts/witness/te_vectors.py\` and replayed by \`npm test\`
without it (\`conformance/tests/te/*.test.ts\`): the quantizers with all their options, over random values, all bit patterns, tiles of zeros,
NaN, subnormals and infinities; \`Linear\` in seven sizes, \`LayerNormLinear\` and \`LayerNormMLP\` from an exact norm on; several
microbatches with cached weights, gradients added to main gradients, and delayed scaling's scales and histories over five iterations.
The reference computes every bit of them.

${engineTable(quantizations, nvfp4, modules)}

Two things differ by intent. Padding of block scales is zero here and undefined there. Where gradients are added to a main gradient
under per-tensor FP8, cuBLASLt rounds the product to f32 before it adds, and the replay does the same; our own backends add once.

Norms and activations are functions of our own (numerics.md §7), and sums have another order. How far they lie from
TransformerEngine's on the same inputs, in units of the last place of their type; the many units are those of results
near zero, where a formula cancels:

${distanceTable(distances.functions)}

In whole modules, where the gradient passes a norm:

${distanceTable(distances.modules)}

## Witnesses

Answers of other projects, recorded with their origin and replayed without them (\`scripts/witness\` says how each was made, and
where its conventions differ from ours).

${await witnessTable()}

## Laws

\`npm test\` runs the laws of \`lockstep/conformance\` over drawn inputs, and \`lockstep conform --runs N --seed S\` as many more as
you like: each operation against its oracle, and sentences that hold without one (encode is monotone, nothing is nearer than what
it gives, a scale is the least that fits, a tie goes to the even code). Inputs are drawn by arbitraries aimed at ties and their
neighbours, subnormal edges, scale boundaries, dead blocks, NaN and infinities, and shapes 0, 1 and one past a tile.

Negative controls (\`conformance/tests/laws/negative-controls.test.ts\`): broken variants, each of which a law that the test names must
catch.

## What is not confirmed

The \`ada-*\` and \`blackwell-*\` datapaths are published models; they agree with recorded answers of the simulator mmasim, and no
hardware here has confirmed them. \`supports\` says \`unverified\` for them. Rounding \`toOdd\` has no outside witness: the oracle
and the laws are its only cover.
`;
  return { "docs/conformance.md": text };
}
