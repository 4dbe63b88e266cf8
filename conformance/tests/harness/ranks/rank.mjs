// One rank as a process with the built package, on the backend RANKS_ON (default wasm). `programs FILE` runs the programs in that
// file and prints their results. `fault NAME RANK` gives that rank the fault NAME; every rank prints the error that it gets; with
// ASIDE, ranks call on the side stream. `large` gathers large tensors on the side stream. `device RANK` requires the transport
// "device", and that rank waits a second before it reports its supported transports.
import { readFileSync } from "node:fs";
import { add, DistributedError, empty, onSideStream, openBackend, tensor } from "lockstep";
import { openProcessGroup } from "lockstep/distributed";
import { runCalls } from "./program.mjs";

const [job, name, faultyRank] = process.argv.slice(2);

const ones = (backend, length) => tensor(backend, new Float32Array(length).fill(1));
const zerosBf16 = (backend, length) => empty(backend, "bf16", [length]).write(new Uint16Array(length));
const sleep = (ms) => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);

/** What the faulty rank does instead of `allReduce` of f32 [4]. */
const FAULTS = {
  none: (group) => group.allReduce(ones(group.backend, 4)),
  killed: () => process.kill(process.pid, "SIGKILL"),
  stopped: () => process.kill(process.pid, "SIGSTOP"),
  sleeps: () => sleep(Number(process.env.SLEEPS_MS ?? 600_000)),
  throws: () => {
    throw new Error("a bug of the program");
  },
  exits: () => process.exit(3),
  leaves: (group) => group.dispose(),
  aborts: (group) => group.abort("the loss is not a number"),
  shape: (group) => group.allReduce(ones(group.backend, 5)),
  dtype: (group) => group.allReduce(zerosBf16(group.backend, 4)),
  plan: (group) => group.allReduce(ones(group.backend, 4), { plan: { algorithm: "ring" } }),
  order: (group) => group.allGather(ones(group.backend, 4)),
  // the same call on the stream that the other ranks do not use
  aside: (group) => FAULTS.none(group),
  message: (group) => group.send(ones(group.backend, 4), (group.rank + 1) % group.size),
  // sends two rows to each other rank, which expects one
  rows: (group) => {
    const sent = Array.from({ length: group.size }, (_, to) => (to === group.rank ? 1 : 2));
    const received = sent.map(() => 1);
    return group.allToAll(ones(group.backend, 2 * group.size - 1), { sent, received });
  },
};

const open = () =>
  openBackend(process.env.RANKS_ON ?? "wasm", { threads: 1, device: Number(process.env.LOCAL_RANK ?? 0) });

async function programs() {
  const backend = await open();
  const group = await openProcessGroup(backend, { timeoutMs: Number(process.env.TIMEOUT_MS) });
  const { transport } = group;
  const results = [];
  for (const program of JSON.parse(readFileSync(name, "utf8"))[group.rank]) {
    const calls = runCalls({ empty, add, onSideStream }, group, program);
    let step = calls.next();
    while (!step.done) step = calls.next();
    results.push(await step.value);
  }
  await group.barrier();
  await group.dispose();
  backend.trim();
  const { live, reserved } = backend.memoryUse();
  await backend.dispose();
  return { results, live, reserved, transport };
}

/** Runs an action on the side stream or the main one. On the side stream it must return no promise. */
function onStream(isAside, group, action) {
  if (!isAside) return action(group);
  const results = [];
  onSideStream(group.backend, () => void results.push(action(group)));
  return results[0];
}

async function fault() {
  const backend = await open();
  const group = await openProcessGroup(backend, { timeoutMs: Number(process.env.TIMEOUT_MS) });
  const [isFaulty, isAside] = [String(group.rank) === faultyRank, Boolean(process.env.ASIDE)];
  onStream(isAside, group, FAULTS.none);
  const action = isFaulty ? FAULTS[name] : FAULTS[name === "rows" ? "evenly" : "none"];
  const isOnOtherStream = isFaulty && name === "aside";
  try {
    await onStream(isAside !== isOnOtherStream, group, action);
  } catch (error) {
    // does not report the failure again, which would replace the error
    if (error instanceof DistributedError) await group.dispose();
    throw error;
  }
  await group.dispose();
  await backend.dispose();
  return {};
}
FAULTS.evenly = (group) => group.allToAll(ones(group.backend, group.size));

async function device() {
  const backend = await open();
  const exchange = () => void sleep(String(process.env.RANK) === name ? 1000 : 0);
  Object.defineProperty(backend, "exchange", { get: exchange });
  const timeoutMs = Number(process.env.TIMEOUT_MS);
  await openProcessGroup(backend, { timeoutMs, transport: "device" });
  return {};
}

/** Gathers 2 MiB from each rank on the side stream, and describes unexpected results. */
async function large() {
  const backend = await open();
  const group = await openProcessGroup(backend, { timeoutMs: Number(process.env.TIMEOUT_MS) });
  const count = 2 ** 21;
  const pattern = (rank) => (_, i) => (i * 31 + rank * 7) % 251;
  const faults = [];
  for (let call = 0; call < 3; call++) {
    const x = empty(backend, "u8", [count]).write(new Uint8Array(count).map(pattern(group.rank + call)));
    const result = onSideStream(backend, () => group.allGather(x));
    // only the side stream may own memory that other ranks write, because only that stream waits for the memory's earlier users
    const mainMemory = empty(backend, "u8", [count * group.size]);
    if (
      Math.abs(mainMemory.address - result.address) < 2 ** 28 &&
      process.env.STAND_IN_EXPORTED === undefined
    )
      faults.push(`call ${call}: memory of the main stream`);
    const data = await result.data();
    for (let rank = 0; rank < group.size; rank++) {
      const expected = new Uint8Array(count).map(pattern(rank + call));
      if (Buffer.compare(data.subarray(rank * count, (rank + 1) * count), expected) !== 0)
        faults.push(`call ${call}: the part of rank ${rank}`);
    }
    for (const buffer of [x, result, mainMemory]) buffer.dispose();
  }
  await group.barrier();
  await group.dispose();
  await backend.dispose();
  return { wrong: faults };
}

const JOBS = { programs, fault, device, large };

try {
  console.log(JSON.stringify(await JOBS[job]()));
} catch (error) {
  const { name: type, failure, operation, rank, message } = error;
  if (error.code === undefined) throw error;
  console.log(JSON.stringify({ error: { type, failure, operation, rank, message } }));
}
