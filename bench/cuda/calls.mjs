// `npm run bench:calls`: the nanoseconds of JavaScript from the arguments of an operation to the call of the addon, which does
// nothing here. Needs no GPU. `-- --only PATTERN` measures the operations whose names match.
import { parseArgs } from "node:util";
import * as lockstep from "lockstep";
import { openCuda } from "../../dist/src/backends/cuda/backend.js";
import { LOWERINGS } from "../../dist/src/backends/cuda/lowerings.gen.js";
import { NATIVE_CALLS } from "../../dist/src/backends/cuda/native-calls.js";
import { cpu } from "../timing.mjs";

const { values: flags } = parseArgs({ options: { only: { type: "string" }, rounds: { type: "string" } } });
const ROUNDS = Number(flags.rounds ?? 60);
const CALLS = 2_000;
const [ROWS, COLUMNS] = [128, 256];

/** The addon's exports. All of them do nothing, except allocation. */
function idleExports() {
  let next = 256;
  const allocate = (_device, bytes) => {
    const address = next;
    next += 256 * Math.ceil((bytes + 1) / 256);
    return address;
  };
  const nothing = () => {};
  const idle = ["close", "free", "write", "copy", "trim", "synchronize", ...Object.keys(NATIVE_CALLS)];
  return {
    ...Object.fromEntries(idle.map((name) => [name, nothing])),
    Device: class {},
    devices: () => [{ name: "none", major: 10, minor: 0, multiprocessors: 1, bytes: 0, uuid: "0" }],
    versions: () => ({ runtime: 13010, driver: 13010, cublasLt: 130100 }),
    memory: () => ({ live: 0, reserved: 0, blocks: 0 }),
    allocate,
  };
}

/** Runs `body` and returns the context and arguments of its last call of each operation. */
function argumentsOf(body) {
  const originals = Object.entries(LOWERINGS).map(([name, { run }]) => [name, run]);
  const calls = new Map();
  for (const [name, run] of originals)
    LOWERINGS[name].run = (context, args) => {
      calls.set(name, [context, args]);
      run(context, args);
    };
  body();
  for (const [name, run] of originals) LOWERINGS[name].run = run;
  return calls;
}

const backend = openCuda(idleExports());
const x = lockstep.zeros(backend, "bf16", [ROWS, COLUMNS]);
const column = (columns = COLUMNS) => lockstep.zeros(backend, "bf16", [columns]);
const quantizers = Object.entries(lockstep)
  .filter(([name]) => /Quantizer$/.test(name) && name !== "Quantizer")
  .flatMap(([name, Quantizer]) => {
    try {
      return [[name, new Quantizer()]];
    } catch {
      return [];
    }
  });

const kind = { kind: "gelu" };
const [gamma, beta] = [column(), column()];

/** The calls of the public interface, by the operation that each measures and a name. */
const PUBLIC = [
  ["norm", "norm", () => lockstep.layerNorm(x, gamma, beta)],
  ["columnSum", "columnSum", () => lockstep.columnSum(x)],
  ["transpose", "transpose", () => lockstep.transpose(x)],
  ["hadamard", "hadamard", () => lockstep.hadamard(x)],
  ["activation", "activation", () => lockstep.activation(x, kind)],
  ["gated", "gated", () => lockstep.gated(x, kind)],
  ["gemm", "gemm fp32", () => lockstep.gemm({ x, w: x, datapath: "fp32" })],
  [
    "relayout",
    "relayout",
    () => lockstep.relayoutScales(new lockstep.MXFP8Quantizer().quantize(x), "rowwise", "swizzled"),
  ],
  ...quantizers.flatMap(([name, quantizer]) => [
    ["quantize", `quantize ${name}`, () => quantizer.quantize(x)],
    ["dequantize", `dequantize ${name}`, () => quantizer.dequantize(quantizer.quantize(x))],
    ["activationQuantize", `activationQuantize ${name}`, () => quantizer.activationQuantize(x, kind)],
    ["normQuantize", `normQuantize ${name}`, () => quantizer.normQuantize(x, { gamma, beta })],
    ["biasGradQuantize", `biasGradQuantize ${name}`, () => quantizer.biasGradQuantize(x)],
  ]),
];

function cases() {
  return PUBLIC.flatMap(([operation, name, body]) => {
    if (flags.only && !name.match(flags.only)) return [];
    try {
      const call = argumentsOf(body).get(operation);
      return call ? [{ name, call, run: LOWERINGS[operation].run, best: Number.POSITIVE_INFINITY }] : [];
    } catch (error) {
      console.log(`${name}: ${error.message}`);
      return [];
    }
  });
}

const all = cases();
for (let round = 0; round < ROUNDS; round++)
  for (const each of all) {
    const { run, call } = each;
    const [context, args] = call;
    const start = cpu();
    for (let i = 0; i < CALLS; i++) run(context, args);
    each.best = Math.min(each.best, (cpu() - start) / CALLS);
  }
for (const { name, best } of all) console.log(`${name.padEnd(48)} ${(best * 1e6).toFixed(0).padStart(6)} ns`);
