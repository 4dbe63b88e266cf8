// One rank of the benchmark of collective operations. Rank 0 prints the results.
import { empty, onSideStream, openBackend } from "lockstep";
import { localRank, openProcessGroup } from "lockstep/distributed";
import { reduceParts } from "../../dist/src/collectives/devices/reduce.js";
import { median } from "../timing.mjs";

const ROUNDS = Number(process.argv[2]);
/** The number of calls in a round, enqueued in sequence: enough that the enqueuing time of the first is negligible. */
const timesFor = (mib) => (mib > 64 ? 10 : 40);
const MIB = 2 ** 20;
const backend = await openBackend("cuda", { device: localRank() });
const group = await openProcessGroup(backend, { transport: "device", timeoutMs: 60_000 });
const { rank, size } = group;

/** An NCCL communicator without a process group around it, to measure NCCL alone. */
const invitation = empty(backend, "u8", [128]).write(
  rank === 0 ? backend.exchange.invite() : new Uint8Array(128),
);
group.broadcast(invitation, { out: invitation });
const plain = backend.exchange.open({
  invitation: await invitation.data(),
  rank,
  size,
  failed: new Int32Array(new SharedArrayBuffer(4)),
  timeoutMs: 60_000,
  check: () => undefined,
});

const between = (body) => () => {
  plain.begin();
  body();
  plain.end();
};
/** The arguments of `reduceParts`, which is called directly, without the checks of a process group. */
const side = { rank, size, devices: plain, backend };
const how = { dtype: "bf16", order: Array.from({ length: size }, (_, i) => i), sum: "f32", factor: 1 };
const RING = { algorithm: "ring" };
/** A call on the side stream, on which GPUs of one host copy to each other. */
const aside = (call) => () => onSideStream(backend, call).dispose();
const rowsOf = (bytes) => {
  const x = empty(backend, "bf16", [bytes / 2]);
  const part = empty(backend, "bf16", [bytes / 2 / size]);
  const count = part.size;
  return {
    "reduce-scatter: NCCL": between(() => plain.reduceScatter(x.address, part.address, count, "bf16")),
    "reduce-scatter: ring": () => group.reduceScatter(x, { plan: RING, out: part }),
    "reduce-scatter: ranked": () => group.reduceScatter(x, { out: part }),
    "reduce-scatter: aside": aside(() => group.reduceScatter(x)),
    ...Object.fromEntries(
      [1, 2, 4, 8].map((pieces) => [
        `reduce-scatter: ranked in ${pieces}`,
        () =>
          reduceParts(side, {
            ...how,
            x: x.address,
            out: part.address,
            counts: part.shape.concat(Array(size - 1).fill(count)),
            pieces,
          }),
      ]),
    ),
    "all-gather: NCCL": between(() => plain.allGather(part.address, x.address, part.byteLength)),
    "all-gather": () => group.allGather(part, { out: x }),
    "all-gather: aside": aside(() => group.allGather(part)),
    "all-reduce: ranked": () => group.allReduce(x, { out: x }),
    "all-to-all": () => group.allToAll(x).dispose(),
    "all-to-all: aside": aside(() => group.allToAll(x)),
  };
};

const results = [];
for (const mib of [1, 16, 64, 256]) {
  const timesOfRound = timesFor(mib);
  const rows = rowsOf(mib * MIB);
  const times = Object.fromEntries(Object.keys(rows).map((name) => [name, []]));
  const hosts = Object.fromEntries(Object.keys(rows).map((name) => [name, []]));
  for (let round = -2; round < ROUNDS; round++) {
    for (const [name, run] of Object.entries(rows)) {
      await group.barrier();
      backend.timeline.mark();
      const begun = performance.now();
      for (let i = 0; i < timesOfRound; i++) run();
      const host = (performance.now() - begun) / timesOfRound;
      backend.timeline.mark();
      const [span] = backend.timeline.spans();
      if (round < 0) continue;
      times[name].push(span / timesOfRound);
      hosts[name].push(host);
    }
  }
  for (const name of Object.keys(rows))
    results.push({ mib, name, ms: median(times[name]), hostMs: median(hosts[name]) });
}
if (rank === 0) {
  console.log(
    `${backend.description}, ${size} ranks, ${group.transport.description}; milliseconds, medians of ${ROUNDS} rounds`,
  );
  for (const { mib, name, ms, hostMs } of results) {
    const nccl = results.find((each) => each.mib === mib && each.name === `${name.split(":")[0]}: NCCL`);
    const ratio = nccl && nccl.name !== name ? `  ${(nccl.ms / ms).toFixed(3)} of NCCL` : "";
    console.log(
      `${String(mib).padStart(4)} MiB  ${name.padEnd(24)} ${ms.toFixed(4)}  host ${hostMs.toFixed(4)}${ratio}`,
    );
  }
  console.log(
    JSON.stringify({ description: backend.description, size, library: group.transport.description, results }),
  );
}
await group.barrier();
plain.close(true);
await group.dispose();
await backend.dispose();
