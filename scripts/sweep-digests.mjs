// Encodes all 2^32 f32 inputs with every format, rounding and overflow policy on the reference, and writes their
// digests to conformance/vectors/sweep-digests.json: for each combination, 256 pairs of u32 in hexadecimal. An
// interrupted run can be resumed. Usage: node scripts/sweep-digests.mjs [--threads N]
import { readFile, writeFile } from "node:fs/promises";
import { parseArgs } from "node:util";
import { openBackend, ROUNDINGS, SCALAR_FORMATS, SWEEP_CHUNKS, sweepChunk } from "lockstep";

const PATH = "conformance/vectors/sweep-digests.json";
const RANDOM = { seed: 0x0123456789abcdefn, offset: 4n };

const { values } = parseArgs({ options: { threads: { type: "string", default: "1" } } });
const backend = await openBackend("wasm", { threads: Number(values.threads) });
const runs = JSON.parse(await readFile(PATH, "utf8").catch(() => '{"runs":[]}')).runs;
const isDone = (a) =>
  runs.some((b) => a.format === b.format && a.rounding === b.rounding && a.overflow === b.overflow);
const hex = (n) => n.toString(16).padStart(8, "0");

for (const format of Object.keys(SCALAR_FORMATS)) {
  for (const rounding of ROUNDINGS) {
    for (const overflow of overflowsOf(format)) {
      const run = { format, rounding, overflow };
      if (isDone(run)) continue;
      const start = performance.now();
      let digests = "";
      for (let chunk = 0; chunk < SWEEP_CHUNKS; chunk++) {
        digests += (await sweepChunk(backend, chunk, { ...run, random: RANDOM })).map(hex).join("");
      }
      runs.push({ ...run, digests });
      await writeFile(PATH, text());
      process.stdout.write(
        `${format} ${rounding} ${overflow}: ${((performance.now() - start) / 1000).toFixed(1)} s\n`,
      );
    }
  }
}
await backend.dispose();

/**
 * The overflow policies to record: integers, which have no special codes, always saturate; `propagate` follows from the others.
 */
function overflowsOf(format) {
  const saturates = ["integer", "symmetric"].includes(SCALAR_FORMATS[format].specials);
  return saturates ? ["saturate"] : ["saturate", "nonfinite"];
}

/** The file's text, with one combination per line, so that a changed digest shows as one changed line. */
function text() {
  const head = {
    origin:
      "node scripts/sweep-digests.mjs: the reference over all 2^32 inputs; digest as in docs/cli.md, chunk by chunk",
    inputs: 2 ** 32,
    seed: `0x${RANDOM.seed.toString(16)}`,
    offset: Number(RANDOM.offset),
  };
  const lines = runs.map((run) => JSON.stringify(run)).join(",\n");
  return `${JSON.stringify(head).slice(0, -1)},"runs":[\n${lines}\n]}\n`;
}
