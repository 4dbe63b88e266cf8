// One step of AdamW on bf16 parameters with f32 masters, compared with TransformerEngine's FusedAdam on the same GPU in the same
// rounds, if python3 has it.
import { AdamW, gemm, Parameter, Scope } from "lockstep";
import { median } from "../timing.mjs";
import { mediansBeside, milliseconds, quotient } from "./beside.mjs";
import { randomBf16 } from "./device.mjs";
import { openServer } from "./server.mjs";

const OPTIMIZERS = [
  { count: 24, rows: 4096, columns: 4096 },
  { count: 500, rows: 128, columns: 128 },
];
/** The bytes of one element: gradient and parameter in bf16; master, m and v are read and written in f32. */
const BYTES = 2 + 2 + 3 * 8;
/** The size and number of products that keep the GPU busy while a step is enqueued, 20 to 40 ms on an H200. */
const BUSY = { size: 8192, products: 20 };

const caseName = ({ count, rows, columns }) => `${count} x ${rows}x${columns}`;

/** A step of all parameters. Optimizer and tensors are added to `owned`. */
function stepOf(backend, { count, rows, columns }, owned) {
  const [values, gradient] = [1, 2].map((seed) => randomBf16(backend, [rows, columns], seed));
  owned.push(values, gradient);
  const parameters = Array.from({ length: count }, (_, i) => {
    const parameter = new Parameter(values.clone());
    parameter.grad = gradient.clone();
    owned.push(parameter.tensor, parameter.grad);
    return [`parameter${i}`, parameter];
  });
  const optimizer = new AdamW(new Map(parameters), { learningRate: 1e-3, weightDecay: 0.01 });
  owned.unshift(optimizer);
  return () => optimizer.step();
}

/** The median seconds until a step is enqueued, and the median seconds of the GPU, which begins afterwards. */
async function clocksOf(backend, step, wait, rounds, { size, products }) {
  const [host, gpu] = [[], []];
  const scope = new Scope();
  const x = randomBf16(backend, [size, size], 1);
  for (let round = 0; round < rounds; round++) {
    wait();
    const start = performance.now();
    step();
    host.push((performance.now() - start) / 1000);
    wait();
    if (!backend.timeline) continue;
    for (let i = 0; i < products; i++) gemm({ x, w: x, outDtype: "bf16" }).out.dispose();
    backend.timeline.mark();
    step();
    backend.timeline.mark();
    gpu.push(backend.timeline.spans()[0] / 1000);
  }
  scope.dispose();
  return { host: median(host), gpu: gpu.length > 0 ? median(gpu) : undefined };
}

/** One row for each set of parameters. */
export async function optimizerRows(
  backend,
  copies,
  wait,
  rounds,
  { alone = false, sizes = OPTIMIZERS, busy = BUSY } = {},
) {
  const flat = sizes.flatMap((each) => Object.values(each));
  const server = alone
    ? undefined
    : await openServer("te_server.py", ["optimizers", ...flat], "TransformerEngine");
  const owned = [];
  const copy = copies.copyCase([sizes[0].rows, sizes[0].columns]);
  const steps = sizes.map((size) => ({ name: caseName(size), run: stepOf(backend, size, owned) }));
  const { ours, its } = await mediansBeside({ cases: [copy, ...steps], server, wait, rounds });
  const rows = [];
  for (const [i, { name, run }] of steps.entries()) {
    const clocks = await clocksOf(backend, run, wait, rounds, busy);
    const itsClock = async (clock) => {
      const each = [];
      for (let round = 0; round < rounds && server?.cases.includes(name); round++)
        each.push(await server.seconds(name, 1, clock));
      return each.length > 0 ? median(each) : undefined;
    };
    const [itsHost, itsGpu] = [await itsClock("host"), await itsClock("gpu")];
    const { count, rows: height, columns } = sizes[i];
    const bytes = count * height * columns * BYTES;
    const gpuRate = (seconds) => seconds && bytes / seconds / 1e9;
    rows.push({
      [`AdamW, bf16 with f32 masters; ${server?.version ?? "no TransformerEngine"}`]: name,
      "ours, ms": milliseconds(ours(name)),
      "its, ms": milliseconds(its(name)),
      "its / ours": quotient(its(name), ours(name)),
      "ours on the host, ms": milliseconds(clocks.host),
      "its on the host, ms": milliseconds(itsHost),
      "ours on the GPU, ms": milliseconds(clocks.gpu),
      "its on the GPU, ms": milliseconds(itsGpu),
      "ours, GB/s": gpuRate(clocks.gpu),
      "of copy": quotient(gpuRate(clocks.gpu), copy.bytes / ours(copy.name) / 1e9),
      "its, GB/s": gpuRate(itsGpu),
    });
  }
  server?.close();
  for (const each of owned) each.dispose();
  return rows;
}
