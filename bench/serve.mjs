// `npm run bench:serve` measures the throughput of `lockstep serve`: bytes of request and response per second. It is compared
// with a process that only echoes the request (the upper bound), and with the same operation without frames. Rounds are
// interleaved; rates are medians. --json prints the rows as JSON.

import { spawn } from "node:child_process";
import { fileURLToPath } from "node:url";
import { encode, MXFP8Quantizer, openBackend, Scope, tensor } from "lockstep";
import { median } from "./timing.mjs";

const ROUNDS = 9;
const SHAPE = [4096, 4096];
const CLI = fileURLToPath(new URL("../dist/src/cli/bin.js", import.meta.url));

/** A frame with one F32 tensor `in/x` and a command line. */
function requestOf(args, data) {
  const entry = { dtype: "F32", shape: SHAPE, data_offsets: [0, data.length] };
  const metadata = { lockstep: JSON.stringify({ id: 1, args }) };
  const header = Buffer.from(JSON.stringify({ __metadata__: metadata, "in/x": entry }));
  const prefix = Buffer.alloc(16);
  prefix.writeBigUInt64LE(BigInt(8 + header.length + data.length), 0);
  prefix.writeBigUInt64LE(BigInt(header.length), 8);
  return [prefix, header, data];
}

/** A child process with a function that sends bytes and reads a number of bytes. */
class Peer {
  #child;
  #chunks;
  #rest = Buffer.alloc(0);

  constructor(program, args) {
    this.#child = spawn(program, args, { stdio: ["pipe", "pipe", "inherit"] });
    this.#chunks = this.#child.stdout[Symbol.asyncIterator]();
  }

  async #read(count) {
    for (let at = 0; at < count; ) {
      if (this.#rest.length === 0) this.#rest = (await this.#chunks.next()).value;
      const part = Math.min(this.#rest.length, count - at);
      this.#rest = this.#rest.subarray(part);
      at += part;
    }
  }

  async #length() {
    while (this.#rest.length < 8) this.#rest = Buffer.concat([this.#rest, (await this.#chunks.next()).value]);
    return Number(this.#rest.readBigUInt64LE(0)) + 8;
  }

  /** Sends a request; returns the number of bytes in both directions. */
  async ask(parts) {
    for (const part of parts) this.#child.stdin.write(part);
    const sent = parts.reduce((sum, { length }) => sum + length, 0);
    const received = await this.#length();
    await this.#read(received);
    return sent + received;
  }

  end() {
    this.#child.stdin.end();
  }
}

const values = Float32Array.from(
  { length: SHAPE[0] * SHAPE[1] },
  (_, i) => ((i * 0x9e3779b1) >> 8) / 2 ** 20,
);
const data = Buffer.from(values.buffer);
const backend = await openBackend("wasm");

/** The operation in this process, from bytes to bytes. */
function inProcess(run) {
  const scope = new Scope();
  const x = tensor(backend, values, SHAPE);
  const sizes = run(x).map((tensor) => tensor.dataSync().byteLength);
  scope.dispose();
  return data.length + sizes.reduce((sum, size) => sum + size, 0);
}

const CASES = [
  {
    name: "encode e4m3",
    args: ["encode", "in", "-o", "out", "--format", "e4m3"],
    alone: () => inProcess((x) => [encode(x, { format: "e4m3" })]),
  },
  {
    name: "quantize mxfp8",
    args: ["quantize", "in", "-o", "out", "--quantizer", "mxfp8"],
    alone: () => inProcess((x) => new MXFP8Quantizer().quantize(x).members),
  },
];

const server = new Peer(process.execPath, [CLI, "serve", "--stdio"]);
const echo = new Peer("cat", []);
const rows = [];
for (const { name, args, alone } of CASES) {
  const request = requestOf(args, data);
  const sides = {
    serve: () => server.ask(request),
    echo: () => echo.ask(request),
    alone: async () => alone(),
  };
  const rates = { serve: [], echo: [], alone: [] };
  for (let round = 0; round <= ROUNDS; round++) {
    for (const [side, run] of Object.entries(sides)) {
      const begin = performance.now();
      const bytes = await run();
      // the first round includes the start of the backends
      if (round > 0) rates[side].push(bytes / 1e3 / (performance.now() - begin));
    }
  }
  rows.push({
    name,
    ...Object.fromEntries(Object.entries(rates).map(([side, list]) => [side, median(list)])),
  });
}
for (const peer of [server, echo]) peer.end();
await backend.dispose();

if (process.argv.includes("--json")) process.stdout.write(`${JSON.stringify(rows)}\n`);
else
  for (const { name, serve, echo: echoed, alone } of rows)
    process.stdout.write(
      `${name}: serve ${serve.toFixed(0)} MB/s, an echo ${echoed.toFixed(0)}, in this process ${alone.toFixed(0)}\n`,
    );
