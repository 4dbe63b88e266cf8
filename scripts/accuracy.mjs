// Measures the functions of the reference over all 2^32 inputs, and writes conformance/vectors/accuracy.json and
// docs/accuracy.md from it.
//   node scripts/accuracy.mjs [--jobs n] [--stride n] [function ...]
// Without names it measures all functions, one process each, --jobs of them at once (default 1): half an hour of processor time.
// --stride n takes every n-th chunk of 2^16 inputs and writes nothing.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFile, writeFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { createServer } from "vite";

const RESULTS = "conformance/vectors/accuracy.json";
const CHUNKS = 65536;

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    stride: { type: "string", default: "1" },
    jobs: { type: "string", default: "1" },
    child: { type: "boolean", default: false },
  },
});
const stride = Number(values.stride);

// by default the stems are optimized, as in full runs of the tests
process.env.LOCKSTEP_TESTS ??= "full";
const server = await createServer({
  configFile: false,
  logLevel: "error",
  appType: "custom",
  server: { middlewareMode: true, ws: false, watch: null },
  resolve: {
    alias: { "#platform": fileURLToPath(new URL("../src/backends/platform/node.ts", import.meta.url)) },
  },
});
const [{ FUNCTION_FORMS, measure }, { openStems }] = await Promise.all(
  ["accuracy", "stems"].map((name) => server.ssrLoadModule(`/conformance/tests/harness/accuracy/${name}.ts`)),
);

if (values.child) process.stdout.write(JSON.stringify(await one(positionals[0])));
else {
  const left = positionals.length > 0 ? [...positionals] : Object.keys(FUNCTION_FORMS);
  await Promise.all(Array.from({ length: Number(values.jobs) }, () => job(left)));
  if (stride === 1) await writePage();
}

async function one(name) {
  const chunks = Array.from({ length: Math.ceil(CHUNKS / stride) }, (_, i) => i * stride);
  return { name, ...measure(await openStems(), FUNCTION_FORMS[name], chunks) };
}

/** Measures the remaining functions, each in a separate process, so that the loops are compiled for one function. */
async function job(left) {
  for (let name = left.shift(); name !== undefined; name = left.shift()) {
    const child = spawn(process.execPath, [process.argv[1], "--child", "--stride", values.stride, name], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    let text = "";
    child.stdout.on("data", (piece) => {
      text += piece;
    });
    const [code] = await once(child, "close");
    if (code !== 0) throw new Error(`${name} failed`);
    process.stdout.write(`${text}\n`);
    if (stride === 1) await record(JSON.parse(text));
  }
}

async function record(result) {
  const others = (await recorded()).filter(({ name }) => name !== result.name);
  const all = Object.keys(FUNCTION_FORMS).flatMap((each) =>
    [...others, result].filter(({ name }) => name === each),
  );
  await writeFile(RESULTS, `[\n${all.map((row) => JSON.stringify(row)).join(",\n")}\n]\n`);
}

async function recorded() {
  const text = await readFile(RESULTS, "utf8").catch(() => "[]");
  return JSON.parse(text);
}

async function writePage() {
  const rows = (await recorded()).map(({ name, ulps, at, apart, different }) => {
    const rest = apart > 0 ? `; absolute ${apart.toExponential(1)} where it is below 2^-6` : "";
    return `| ${name} | ${ulps.toFixed(4)}${rest} | ${at} | ${different} |`;
  });
  await writeFile(
    "docs/accuracy.md",
    `# Accuracy of the functions

\`node scripts/accuracy.mjs\` measures \`conformance/vectors/accuracy.json\` and writes this page from it, in about half an
hour on one core.

The reference defines these functions, and every backend gives the same bits. The table says how far these bits are
from the true value. Each function is evaluated in f64 by \`+ - * /\` and rounded once to f32; 0.5 ulp is the best
that any function with an f32 result can do. An ulp is that of an f32 as large as the true value, 2^-149 at least.

The inputs are all 2^32, so these are the true maxima. Each true value is first computed in f64, by formulas without cancellation
whose relative error is below 2^-42, which is 2^-18 of an f32's ulp. The 32 inputs with the largest errors are then computed in
the integer arithmetic of conformance/oracle/core/wide.ts, which is correct to 100 bits or more; the table has the largest of
these errors. The error of another input could be larger by at most 2^-17 ulp, which four digits do not show.

The last column counts the inputs for which the bits differ from the oracle (conformance/oracle/core/math.ts and
conformance/oracle/elementwise/activation.ts), which was written only from [numerics.md](numerics.md) §7.2 and §7.6.

gelu is the tanh form with the f32 coefficients of numerics.md §7.2. A prime marks the derivative. Near a zero of a derivative its
error is not small in ulp, but in absolute terms; the table has the absolute error there.

| function | largest error, ulp | at | inputs that differ from the oracle |
|---|---|---|---|
${rows.join("\n")}

Norms, losses and the products of gated forms are sequences of f32 operations, each correctly rounded, in the order
that numerics.md §7 states.
`,
  );
}
