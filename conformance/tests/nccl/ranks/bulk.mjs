// One rank with a GPU. It computes sums and maxima of many elements and compares them with ranks in one process, which are the
// definition. `bulk.mjs SEED RUNS ELEMENTS` prints the number of equal elements, and describes the first case that differs.
import { createCipheriv } from "node:crypto";
import { empty, loopbackGroup, onSideStream, openBackend } from "lockstep";
import { localRank, openProcessGroup } from "lockstep/distributed";

const [seed, runs, most] = process.argv.slice(2).map(Number);

/** The drawn bits of each pair of 16-bit elements or of each f32, and the fixed bits. Values are within a few binades. */
const BITS = {
  f32: { mask: 0x83ffffff, base: 0x3c000000, bytes: 4, codes: Uint32Array },
  bf16: { mask: 0x83ff83ff, base: 0x3c003c00, bytes: 2, codes: Uint16Array },
  f16: { mask: 0x8fff8fff, base: 0x30003000, bytes: 2, codes: Uint16Array },
};

/** Pseudorandom bytes derived from a text. */
function drawn(text, bytes) {
  const key = Buffer.alloc(16);
  key.write(text);
  return createCipheriv("aes-128-ctr", key, Buffer.alloc(16)).update(Buffer.alloc(bytes));
}

function elements(dtype, text, count) {
  const { mask, base, bytes } = BITS[dtype];
  const data = drawn(text, Math.ceil((count * bytes) / 4) * 4);
  const words = new Uint32Array(data.buffer, data.byteOffset, data.length / 4);
  for (let i = 0; i < words.length; i++) words[i] = (words[i] & mask) | base;
  return new Uint8Array(data.buffer, data.byteOffset, count * bytes);
}

function caseOf(run, size) {
  const draw = new Uint32Array(new Uint8Array(drawn(`case ${seed} ${run}`, 4 * (8 + size))).buffer);
  const dtype = Object.keys(BITS)[draw[0] % 3];
  const op = ["allReduce", "reduceScatter"][draw[1] % 2];
  const how = [
    {},
    { plan: { algorithm: "ring" } },
    { plan: { algorithm: "ring" } },
    {},
    { reduction: "max" },
  ][draw[2] % 5];
  // half of the cases have the maximum size, the others any size
  const count = draw[3] % 2 ? most : 1 + (draw[4] % 2 ** (draw[5] % 20));
  const rows = Array.from({ length: size }, (_, rank) =>
    draw[6] % 2 ? Math.ceil(count / size) : (draw[8 + rank] % Math.ceil((2 * count) / size)) + rank,
  );
  const total = rows.reduce((a, b) => a + b, 0);
  const ragged = op === "reduceScatter" ? { rows } : {};
  return { dtype, op, count: total, aside: draw[7] % 2 === 1, options: { ...how, ...ragged } };
}

const apply = async (group, { dtype, op, count, aside, options }, bytes) => {
  const { codes } = BITS[dtype];
  const x = empty(group.backend, dtype, [count]);
  x.write(dtype === "f32" ? new Float32Array(bytes.slice().buffer) : new codes(bytes.slice().buffer));
  const call = () => group[op](x, options);
  const out = aside ? onSideStream(group.backend, call) : call();
  const plan = options.reduction ? "max" : group.sumPlan(op, x, { plan: options.plan, rows: options.rows });
  x.dispose();
  const { buffer, byteOffset, byteLength } = await out.data();
  out.dispose();
  return { codes: new codes(buffer, byteOffset, byteLength / BITS[dtype].bytes), plan };
};

const backend = await openBackend("cuda", { device: localRank() });
const group = await openProcessGroup(backend, {
  transport: "device",
  timeoutMs: Number(process.env.TIMEOUT_MS),
});
const { rank, size, transport } = group;
const reference = await loopbackGroup(size);
const seen = {};
let same = 0;
let failure;
for (let run = 0; run < runs && !failure; run++) {
  const each = caseOf(run, size);
  const parts = Array.from({ length: size }, (_, r) =>
    elements(each.dtype, `${seed} ${run} ${r}`, each.count),
  );
  const got = await apply(group, each, parts[rank]);
  const all = await Promise.all(reference.map((one, r) => apply(one, each, parts[r])));
  const wanted = all[rank].codes;
  let differing = got.codes.length === wanted.length ? 0 : -1;
  const first = [];
  if (
    Buffer.compare(
      Buffer.from(got.codes.buffer, got.codes.byteOffset, got.codes.byteLength),
      Buffer.from(wanted.buffer, wanted.byteOffset, wanted.byteLength),
    ) !== 0
  )
    for (let i = 0; i < wanted.length; i++) {
      if (got.codes[i] === wanted[i]) continue;
      differing++;
      if (first.length < 5) first.push({ i, got: got.codes[i].toString(16), wanted: wanted[i].toString(16) });
    }
  if (differing !== 0)
    failure = {
      run,
      case: { ...each, options: JSON.stringify(each.options) },
      differing,
      of: wanted.length,
      first,
      plan: JSON.stringify(got.plan),
      wantedPlan: JSON.stringify(all[rank].plan),
    };
  same += wanted.length;
  const how = each.options.reduction ?? each.options.plan?.algorithm ?? "ranked";
  const kind = `${each.op} ${each.dtype} ${how}${each.aside ? " aside" : ""}`;
  seen[kind] = (seen[kind] ?? 0) + wanted.length;
}
await group.barrier();
await group.dispose();
for (const each of reference) await each.dispose();
const { live } = backend.memoryUse();
await backend.dispose();
console.log(JSON.stringify({ rank, same, seen, failure, live, transport }));
