// `npm run bench:dialects` measures the cost of other libraries' conventions on the reference, on one thread: the ratio of each
// dialect quantizer's CPU time to TransformerEngine's rule for the same format and tile. Rounds are interleaved; ratios are of
// medians. --rounds N sets the number of rounds, --size N quantizes [N, N] matrices, --json prints the rows as JSON, --write
// writes the table into docs/performance.md.
import { cpus } from "node:os";
import { parseArgs } from "node:util";
import { DIALECTS, openBackend, quantizerOf, tensor } from "lockstep";
import { quantizerNamed } from "../dist/src/quantizers/named.js";
import { writeSection } from "../scripts/section.mjs";
import { cpu, measure } from "./timing.mjs";

const { values: options } = parseArgs({
  options: {
    rounds: { type: "string", default: "9" },
    size: { type: "string", default: "1024" },
    json: { type: "boolean", default: false },
    write: { type: "boolean", default: false },
  },
});
const [size, rounds] = [Number(options.size), Number(options.rounds)];
const backend = await openBackend("wasm", { threads: 1 });

/** Reproducible values of both signs over a few binades, exact in bf16. */
const values = Float32Array.from({ length: size * size }, (_, i) => {
  const word = Math.imul(i + 1, 0x9e3779b1);
  return ((word >> 24) / 64) * 2 ** ((word & 7) - 3);
});
const sources = ["bf16", "f32"].map((dtype) => {
  const bits = new Uint32Array(values.buffer);
  const codes = dtype === "bf16" ? Uint16Array.from(bits, (word) => word >>> 16) : values;
  return [dtype, tensor(backend, codes, [size, size], dtype)];
});

/** Cases of a quantizer on both types. */
function casesOf(name, quantizer) {
  return sources.map(([dtype, source]) => {
    const target = quantizer.makeEmpty(backend, [size, size], dtype);
    return {
      name: `${name} ${dtype}`,
      unit: "GB/s",
      work: source.byteLength,
      run: () => quantizer.updateQuantized(source, target),
    };
  });
}

const forms = Object.entries(DIALECTS)
  .filter(([dialect]) => dialect !== "te")
  .flatMap(([dialect, { forms }]) => forms.map(({ quantizer }) => ({ dialect, quantizer })));
const rows = [];
for (const { dialect, quantizer } of forms) {
  const ofDialect = quantizerOf({ dialect, quantizer });
  const { format, tile } = ofDialect.spec;
  const name = [dialect, quantizer, tile].join(" ");
  const ofEngine = quantizerNamed(quantizer, { format, tile });
  const rates = measure([...casesOf(name, ofDialect), ...casesOf("own", ofEngine)], rounds, cpu);
  for (const [i, [dtype]] of sources.entries()) {
    const [rate, ofOwn] = [rates[i], rates[i + sources.length]];
    rows.push({
      dialect,
      quantizer,
      format,
      tile,
      dtype,
      rate: rate.median,
      times: ofOwn.median / rate.median,
    });
  }
}
await backend.dispose();

const table = [
  "| dialect | quantizer | input | GB/s | times TransformerEngine's rule |",
  "| --- | --- | --- | ---: | ---: |",
  ...rows.map(
    ({ dialect, quantizer, format, tile, dtype, rate, times }) =>
      `| \`${dialect}\` | ${quantizer} ${format} ${tile} | ${dtype} | ${rate.toFixed(2)} | ${times.toFixed(2)} |`,
  ),
].join("\n");
const host = `${cpus()[0]?.model.trim()}, Node ${process.version}, ${rounds} rounds, [${size}, ${size}]`;
if (options.json) process.stdout.write(`${JSON.stringify({ host, rows }, null, 2)}\n`);
else process.stdout.write(`${host}\n\n${table}\n`);
if (options.write)
  writeSection(
    "docs/performance.md",
    "dialects",
    `${host}; \`npm run bench:dialects -- --write\`:\n\n${table}\n`,
  );
