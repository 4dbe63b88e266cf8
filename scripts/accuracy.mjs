// Measures the functions of the reference against the wide oracle and writes docs/accuracy.md.
// node scripts/accuracy.mjs [random samples per function, default 2^20]: two or three minutes.
import { execFileSync } from "node:child_process";
import { writeFile } from "node:fs/promises";
import { pathToFileURL } from "node:url";

const OUT = "out/accuracy";
const SOURCES = ["harness/stems", "harness/samples", "oracle/wide", "oracle/rational", "oracle/activation"];

/** Compiles the sources into out/accuracy/ and imports them. */
function load() {
  const options = [
    "--outDir",
    OUT,
    "--rootDir",
    "conformance",
    "--declaration",
    "false",
    "--sourceMap",
    "false",
  ];
  const settings = [
    "--target",
    "es2022",
    "--module",
    "nodenext",
    "--skipLibCheck",
    "--types",
    "node",
    "--ignoreConfig",
  ];
  const files = SOURCES.map((name) => `conformance/${name}.ts`);
  execFileSync("node_modules/.bin/tsc", [...options, ...settings, ...files], { stdio: "inherit" });
  return Promise.all(SOURCES.map((name) => import(pathToFileURL(`${OUT}/${name}.js`).href)));
}

const [{ openStems }, { EVERY_BF16, words }, wide, { fromBits }, { RULES }] = await load();
const stems = await openStems("math", "activation");

// Every finite bf16, and f32 whose exponents are spread evenly over [2^-32, 2^8), of both signs.
const count = Number(process.argv[2] ?? 2 ** 20);
const random = words(count).map((word, i) => fromBits(((word & 0x807fffff) | ((95 + (i % 40)) << 23)) >>> 0));
const inputs = Float32Array.from([...EVERY_BF16, ...random].filter(Number.isFinite));

/** The largest error in ulp, and where; where the truth is below `floor`, the largest error by itself. */
function measure(values, truth, floor = 0, defined = () => true) {
  const worst = { ulps: 0, at: 0, apart: 0 };
  inputs.forEach((x, i) => {
    if (!defined(x)) return;
    const exact = truth(wide.real(x));
    const near = Number(exact >> 128n) / 2 ** 128;
    if (Math.abs(near) < floor) {
      worst.apart = Math.max(worst.apart, Math.abs(values[i] - near));
      return;
    }
    const ulps = wide.ulpsApart(values[i], exact);
    if (ulps > worst.ulps) Object.assign(worst, { ulps, at: x });
  });
  return worst;
}

/** The reference's values and slopes of one activation. */
function activation(kind) {
  stems.reset();
  const n = inputs.length;
  const scratch = stems.room(1 << 14);
  const src = stems.put(inputs);
  const ones = stems.put(new Float32Array(n).fill(1));
  const [value, slope] = [stems.room(4 * n), stems.room(4 * n)];
  stems.call.activation(src, 0, value, 0, kind, scratch, 0, n);
  stems.call.activationBackward(ones, 0, src, 0, slope, 0, kind, scratch, 0, n);
  return { value: stems.f32(value, n).slice(), slope: stems.f32(slope, n).slice() };
}

const table = [];
function report(name, { ulps, at, apart }, note = "") {
  const rest = apart > 0 ? `; ${apart.toExponential(1)} in itself ${note}` : "";
  table.push(`| ${name} | ${ulps.toFixed(4)}${rest} | ${at} |`);
  process.stdout.write(`${table.at(-1)}\n`);
}

const FUNCTIONS = { exp: wide.exp, log: wide.log, tanh: wide.tanh, erf: wide.erf };
for (const [name, truth] of Object.entries(FUNCTIONS)) {
  const values = inputs.map((x) => stems.call[name](x));
  report(
    name,
    measure(values, truth, 0, (x) => name !== "log" || x > 0),
  );
}
const FLOOR = 2 ** -6;
for (const [kind, name] of ["gelu", "relu", "silu", "qgelu", "srelu", "sigmoid"].entries()) {
  const { value, slope } = activation(kind);
  const crosses = ["gelu", "silu", "qgelu"].includes(name);
  report(name, measure(value, RULES[name].trueValue));
  report(`${name}'`, measure(slope, RULES[name].trueSlope, crosses ? FLOOR : 0), "where it is below 2^-6");
}

await writeFile(
  "docs/accuracy.md",
  `# Accuracy of the functions

Written by \`node scripts/accuracy.mjs\`.

The reference defines these functions: every backend gives the same bits. This table says how far those bits lie
from the true value. Each function is evaluated in f64 by \`+ - * /\` and rounded once to f32; 0.5 ulp is the best
that any function with an f32 result can do. An ulp is that of an f32 as large as the true value, 2^-149 at least.

Inputs: all finite bf16, and ${count} f32 with exponents spread evenly over [2^-32, 2^8), of both signs. The truth
comes from conformance/oracle/wide.ts, correct to 100 bits or more. The gelu is the tanh form with the f32
coefficients of assembly/activation.ts. A prime marks the slope; slopes that cross zero have an error that is small
in itself, but not in ulp, close to the crossing.

| function | largest error, ulp | at |
|---|---|---|
${table.join("\n")}

Norms, losses and the products of gated forms are sequences of f32 operations, each correctly rounded, in the order
that assembly/norm.ts, assembly/loss.ts, assembly/gated.ts and assembly/reduce.ts state.
`,
);
