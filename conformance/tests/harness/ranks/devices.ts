/** A simulated device transport within one process. It runs the operations of src/collectives/devices. */
import type { Backend, Support } from "../../../../src/backends/backend.js";
import type { DeviceRanks, FoldArgs } from "../../../../src/backends/exchange.js";
import type {
  CollectiveArgs,
  CollectiveName,
  Communicator,
  Membership,
  Transport,
} from "../../../../src/collectives/communicator.js";
import { COLLECTIVES, type RingSide } from "../../../../src/collectives/devices/collectives.js";
import { FLOWS } from "../../../../src/collectives/devices/flow.js";
import { isRingOf, type Rings } from "../../../../src/collectives/devices/ring.js";
import { ProcessGroup } from "../../../../src/collectives/group.js";
import type { SumPlan } from "../../../../src/collectives/plan.js";
import { supportsPlan } from "../../../../src/collectives/plan.js";
import { supportsCollective } from "../../../../src/collectives/supports.js";
import { viewAs } from "../../../../src/tensor/data.js";
import { storageBits, type WideDType } from "../../../../src/tensor/shape.js";
import * as oracle from "../../../oracle/collective/collective.js";
import { PlainTensor, wideValues } from "../../../values/plain.js";
import { rounded } from "../../../values/rounded.js";
import { QueueingBackend } from "./streams.js";

/** The alignment in bytes for which NCCL's kernels are fastest. */
const ALIGNED = 16;

/** The arguments of one rank for an operation of all ranks. */
interface Arrival {
  readonly backend: QueueingBackend;
  readonly what: string;
  readonly x: number;
  readonly out: number;
}

/** One end of a message. */
interface Post {
  readonly backend: QueueingBackend;
  readonly address: number;
  readonly bytes: number;
  done: boolean;
}

/** The state that all ranks of a job share. */
export class Job {
  readonly backends: readonly QueueingBackend[];
  /** The communicator of each rank. */
  readonly communicators: readonly DevicesOfOneProcess[];
  readonly #arrivals = new Map<string, Map<number, Arrival>>();
  readonly #posts = new Map<string, Post[]>();
  readonly #flows = new Map<string, number[]>();

  constructor(
    backends: readonly Backend[],
    /** The ring along which the library adds, for groups of each size. */
    readonly ringsOf: (size: number) => Rings,
  ) {
    this.backends = backends.map((each) => new QueueingBackend(each));
    const ranks = this.backends.map((_, rank) => rank);
    this.communicators = ranks.map((rank) => new DevicesOfOneProcess(this, { id: "world", rank, ranks }));
  }

  get groups(): readonly ProcessGroup[] {
    return this.communicators.map((each) => new ProcessGroup(each));
  }

  arrive(key: string, rank: number, arrival: Arrival): ReadonlyMap<number, Arrival> {
    const all = this.#arrivals.get(key) ?? new Map<number, Arrival>();
    this.#arrivals.set(key, all.set(rank, arrival));
    return all;
  }

  post(key: string): Post[] {
    const posts = this.#posts.get(key) ?? [];
    this.#posts.set(key, posts);
    return posts;
  }

  /** Records the number of bytes that a member sends to, or expects from, another member. */
  flow(key: string, bytes: number): void {
    this.#flows.set(key, [...(this.#flows.get(key) ?? []), bytes]);
  }

  /** Throws unless each pair of members agrees on the number of bytes. */
  requireFlows(): void {
    for (const [key, bytes] of this.#flows) {
      const [id, what, from, to] = key.split("|");
      const other = this.#flows.get([id, what === "sends" ? "expects" : "sends", from, to].join("|"));
      if (String(other) !== String(bytes)) throw new Error(`${key}: ${bytes} and ${other}`);
    }
  }
}

class Devices implements DeviceRanks {
  #pending: { readonly key: string; readonly post: Post }[] = [];
  #calls = 0;

  constructor(
    readonly job: Job,
    readonly of: Membership,
    readonly backend: QueueingBackend,
  ) {}

  requireRunning(): void {}

  begin(): void {
    this.backend.exchanges.awaits(this.backend.stream);
  }

  end(): void {
    this.backend.stream.awaits(this.backend.exchanges);
  }

  send(address: number, bytes: number, to: number): void {
    this.#add(`sent ${this.of.rank} ${to}`, address, bytes, to);
  }

  receive(address: number, bytes: number, from: number): void {
    this.#add(`received ${from} ${this.of.rank}`, address, bytes, from);
  }

  #add(key: string, address: number, bytes: number, other: number): void {
    if (other === this.of.rank || !(bytes > 0)) throw new Error(`a message ${key} of ${bytes} bytes`);
    const post = { backend: this.backend, address, bytes, done: false };
    this.#pending.push({ key: `${this.of.id} ${key}`, post });
  }

  exchange(): void {
    const pending = this.#pending.splice(0);
    let isPosted = false;
    const partnerOf = (key: string): string =>
      key.replace(/ (sent|received) /, (word) => (word === " sent " ? " received " : " sent "));
    const ready = (): boolean => {
      if (!isPosted) for (const { key, post } of pending) this.job.post(key).push(post);
      isPosted = true;
      return pending.every(({ key, post }) => {
        const at = this.job.post(key).indexOf(post);
        return post.done || this.job.post(partnerOf(key)).length > at;
      });
    };
    const run = (): void => {
      for (const { key, post } of pending) {
        const partner = this.job.post(partnerOf(key))[this.job.post(key).indexOf(post)] as Post;
        if (partner.bytes !== post.bytes) throw new Error(`${key}: ${post.bytes} and ${partner.bytes} bytes`);
        if (!post.done)
          transfer(...(key.includes("sent") ? ([post, partner] as const) : ([partner, post] as const)));
        post.done = partner.done = true;
      }
    };
    this.backend.exchanges.push({ ready, run });
  }

  /** Enqueues work that runs when all members have arrived. */
  #together(what: string, x: number, out: number, run: (all: readonly Arrival[]) => void): void {
    const { id, rank, ranks } = this.of;
    const key = `${id} ${this.#calls++}`;
    const arrival = { backend: this.backend, what, x, out };
    let all: ReadonlyMap<number, Arrival> = new Map();
    const ready = (): boolean => {
      all = this.job.arrive(key, rank, arrival);
      return all.size === ranks.length;
    };
    this.backend.exchanges.push({
      ready,
      run: () => {
        const others = ranks.map((_, member) => all.get(member) as Arrival);
        const unlike = others.find((each) => each.what !== what);
        if (unlike) throw new Error(`${what} on one rank and ${unlike.what} on another`);
        if (done.has(all)) return;
        done.add(all);
        run(others);
      },
    });
  }

  allGather(x: number, out: number, bytes: number): void {
    this.#together(`allGather ${bytes}`, x, out, (all) => {
      const parts = all.map((each) => each.backend.inner.memory.readSync(each.x, bytes));
      for (const each of all)
        for (const [i, part] of parts.entries()) each.backend.inner.memory.write(each.out + i * bytes, part);
    });
  }

  reduceScatter(x: number, out: number, count: number, dtype: WideDType): void {
    if (x % ALIGNED !== 0 || out % ALIGNED !== 0) throw new Error(`reduceScatter at ${x} and ${out}`);
    const { length: size } = this.of.ranks;
    const ring = size > 3 ? this.job.ringsOf(size)[dtype] : this.of.ranks.map((_, rank) => rank);
    if (!ring) throw new Error(`reduceScatter of ${dtype} without a ring`);
    this.#together(`reduceScatter ${count} ${dtype}`, x, out, (all) => {
      const parts = all.map((each) => valuesAt(each.backend, each.x, size * count, dtype));
      const sums = oracle.ringSum(
        parts,
        ring,
        all.map(() => count),
        roundTo(dtype),
      );
      for (const [rank, each] of all.entries())
        write(each.backend, each.out, rounded(dtype, [count], sums.slice(rank * count, (rank + 1) * count)));
    });
  }

  broadcast(x: number, out: number, bytes: number, root: number): void {
    this.#together(`broadcast ${bytes} ${root}`, x, out, (all) => {
      const from = all[root] as Arrival;
      const read = from.backend.inner.memory.readSync(from.x, bytes);
      for (const each of all) each.backend.inner.memory.write(each.out, read);
    });
  }

  fold({ parts, stride, own: ownPart, ranks, dtype, sum, factor, out, count }: FoldArgs): void {
    const bytes = storageBits(dtype) / 8;
    const run = (): void => {
      const slots = Array.from({ length: ranks }, (_, i) => {
        if (ownPart?.at === i) return ownPart.address;
        return parts + (ownPart && i > ownPart.at ? i - 1 : i) * stride * bytes;
      });
      const values = slots.map((address) => valuesAt(this.backend, address, count, dtype));
      const ordered = values.map((_, i) => i);
      const last = values.map((_, i) => (i === ranks - 1 ? count : 0));
      const folded =
        sum === undefined
          ? oracle.maximum(values)
          : sum === "f32"
            ? oracle.rankedSum(values, roundTo(dtype))
            : oracle.ringSum(values, ordered, last, roundTo(sum));
      const multiplied =
        factor === 1 ? folded : folded.map((total) => Math.fround(total * Math.fround(factor)));
      write(this.backend, out, rounded(dtype, [count], multiplied));
    };
    this.backend.stream.push({ run });
  }

  ended(): undefined {
    return undefined;
  }

  close(): void {}
}

/** Operations of all ranks that one rank has already executed for all. */
const done = new WeakSet<object>();

function transfer(from: Post, to: Post): void {
  to.backend.inner.memory.write(to.address, from.backend.inner.memory.readSync(from.address, from.bytes));
}

const rounding = new Map<WideDType, Map<number, number>>();

/** Rounds to a wide dtype, and caches the result for each value. */
export function roundTo(dtype: WideDType): (x: number) => number {
  const cache = rounding.get(dtype) ?? new Map<number, number>();
  rounding.set(dtype, cache);
  return (x) => {
    if (dtype === "f32" || Object.is(x, -0)) return x;
    const before = cache.get(x);
    if (before !== undefined) return before;
    const after = wideValues(rounded(dtype, [1], [x]))[0] as number;
    cache.set(x, after);
    return after;
  };
}

function valuesAt(
  { inner }: QueueingBackend,
  address: number,
  count: number,
  dtype: WideDType,
): Float32Array {
  const bytes = inner.memory.readSync(address, (count * storageBits(dtype)) / 8);
  return Float32Array.from(wideValues(new PlainTensor(dtype, [count], viewAs(dtype, bytes))));
}

function write({ inner }: QueueingBackend, address: number, { data }: PlainTensor): void {
  const { buffer, byteOffset, byteLength } = data;
  if (byteLength > 0) inner.memory.write(address, new Uint8Array(buffer, byteOffset, byteLength));
}

class DevicesOfOneProcess implements Communicator {
  readonly id: string;
  readonly rank: number;
  readonly ranks: readonly number[];
  readonly backend: QueueingBackend;
  readonly transport: Transport = { kind: "device", description: "devices of one process" };
  readonly side: RingSide;

  constructor(
    readonly job: Job,
    readonly of: Membership,
  ) {
    const { id, rank, ranks } = of;
    [this.id, this.rank, this.ranks] = [id, rank, ranks];
    this.backend = job.backends[ranks[rank] as number] as QueueingBackend;
    const size = ranks.length;
    const takesRing = (plan: SumPlan): boolean => isRingOf(job.ringsOf(size), plan);
    // a group of one rank has no device communicator
    const devices = (size > 1 ? new Devices(job, of, this.backend) : undefined) as DeviceRanks;
    this.side = { rank, size, backend: this.backend, devices, takesRing };
  }

  supports<K extends CollectiveName>(op: K, args: CollectiveArgs[K]): Support {
    return supportsCollective(op, args);
  }

  supportsPlan(plan: SumPlan): Support {
    return supportsPlan(plan);
  }

  run<K extends CollectiveName>(op: K, args: CollectiveArgs[K]): void {
    const { id, rank, ranks } = this.of;
    for (const [member] of ranks.entries()) {
      const flow = member === rank ? undefined : FLOWS[op](args, this.of, member);
      if (!flow) continue;
      this.job.flow([id, "sends", rank, member].join("|"), flow.sends);
      this.job.flow([id, "expects", member, rank].join("|"), flow.expects);
    }
    // ranks agree through the host, except for a barrier
    if (op === "agree" && (args as CollectiveArgs["agree"]).what !== "barrier") return;
    COLLECTIVES[op](this.side, args);
  }

  async settled(): Promise<void> {
    const { memory } = this.backend;
    const address = memory.allocate(1);
    const read = memory.read(address, 1);
    memory.free(address);
    await read;
  }

  subgroup(of: Membership): Communicator {
    return new DevicesOfOneProcess(this.job, of);
  }

  abort(): void {}

  async dispose(): Promise<void> {}
}
