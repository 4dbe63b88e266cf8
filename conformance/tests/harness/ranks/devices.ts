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
const ALIGNMENT = 16;

/** The arguments of one rank for an operation of all ranks. */
interface Arrival {
  readonly backend: QueueingBackend;
  readonly operation: string;
  readonly x: number;
  readonly out: number;
}

/** One end of a message. */
interface Post {
  readonly backend: QueueingBackend;
  readonly address: number;
  readonly bytes: number;
  isDone: boolean;
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

  addArrival(key: string, rank: number, arrival: Arrival): ReadonlyMap<number, Arrival> {
    const arrivals = this.#arrivals.get(key) ?? new Map<number, Arrival>();
    this.#arrivals.set(key, arrivals.set(rank, arrival));
    return arrivals;
  }

  postsOf(key: string): Post[] {
    const posts = this.#posts.get(key) ?? [];
    this.#posts.set(key, posts);
    return posts;
  }

  /** Records the number of bytes that a member sends to, or expects from, another member. */
  addFlow(key: string, bytes: number): void {
    this.#flows.set(key, [...(this.#flows.get(key) ?? []), bytes]);
  }

  /** Throws unless each pair of members agrees on the number of bytes. */
  requireFlows(): void {
    for (const [key, bytes] of this.#flows) {
      const [id, direction, from, to] = key.split("|");
      const counterpart = this.#flows.get(
        [id, direction === "sends" ? "expects" : "sends", from, to].join("|"),
      );
      if (String(counterpart) !== String(bytes)) throw new Error(`${key}: ${bytes} and ${counterpart}`);
    }
  }
}

class Devices implements DeviceRanks {
  #pending: { readonly key: string; readonly post: Post }[] = [];
  #calls = 0;

  constructor(
    readonly job: Job,
    readonly membership: Membership,
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
    this.#addPost(`sent ${this.membership.rank} ${to}`, address, bytes, to);
  }

  receive(address: number, bytes: number, from: number): void {
    this.#addPost(`received ${from} ${this.membership.rank}`, address, bytes, from);
  }

  #addPost(key: string, address: number, bytes: number, peer: number): void {
    if (peer === this.membership.rank || !(bytes > 0)) throw new Error(`a message ${key} of ${bytes} bytes`);
    const post = { backend: this.backend, address, bytes, isDone: false };
    this.#pending.push({ key: `${this.membership.id} ${key}`, post });
  }

  exchange(): void {
    const pending = this.#pending.splice(0);
    let isPosted = false;
    const partnerKey = (key: string): string =>
      key.replace(/ (sent|received) /, (word) => (word === " sent " ? " received " : " sent "));
    const ready = (): boolean => {
      if (!isPosted) for (const { key, post } of pending) this.job.postsOf(key).push(post);
      isPosted = true;
      return pending.every(({ key, post }) => {
        const index = this.job.postsOf(key).indexOf(post);
        return post.isDone || this.job.postsOf(partnerKey(key)).length > index;
      });
    };
    const run = (): void => {
      for (const { key, post } of pending) {
        const partner = this.job.postsOf(partnerKey(key))[this.job.postsOf(key).indexOf(post)] as Post;
        if (partner.bytes !== post.bytes) throw new Error(`${key}: ${post.bytes} and ${partner.bytes} bytes`);
        if (!post.isDone)
          transfer(...(key.includes("sent") ? ([post, partner] as const) : ([partner, post] as const)));
        post.isDone = partner.isDone = true;
      }
    };
    this.backend.exchanges.push({ ready, run });
  }

  /** Enqueues work that runs when all members have arrived. */
  #runTogether(operation: string, x: number, out: number, run: (all: readonly Arrival[]) => void): void {
    const { id, rank, ranks } = this.membership;
    const key = `${id} ${this.#calls++}`;
    const arrival = { backend: this.backend, operation, x, out };
    let arrivals: ReadonlyMap<number, Arrival> = new Map();
    const ready = (): boolean => {
      arrivals = this.job.addArrival(key, rank, arrival);
      return arrivals.size === ranks.length;
    };
    this.backend.exchanges.push({
      ready,
      run: () => {
        const members = ranks.map((_, member) => arrivals.get(member) as Arrival);
        const mismatch = members.find((each) => each.operation !== operation);
        if (mismatch) throw new Error(`${operation} on one rank and ${mismatch.operation} on another`);
        if (executed.has(arrivals)) return;
        executed.add(arrivals);
        run(members);
      },
    });
  }

  allGather(x: number, out: number, bytes: number): void {
    this.#runTogether(`allGather ${bytes}`, x, out, (all) => {
      const inputs = all.map((each) => each.backend.inner.memory.readSync(each.x, bytes));
      for (const each of all)
        for (const [i, part] of inputs.entries()) each.backend.inner.memory.write(each.out + i * bytes, part);
    });
  }

  reduceScatter(x: number, out: number, count: number, dtype: WideDType): void {
    if (x % ALIGNMENT !== 0 || out % ALIGNMENT !== 0) throw new Error(`reduceScatter at ${x} and ${out}`);
    const { length: size } = this.membership.ranks;
    const ring = size > 3 ? this.job.ringsOf(size)[dtype] : this.membership.ranks.map((_, rank) => rank);
    if (!ring) throw new Error(`reduceScatter of ${dtype} without a ring`);
    this.#runTogether(`reduceScatter ${count} ${dtype}`, x, out, (all) => {
      const inputs = all.map((each) => valuesAt(each.backend, each.x, size * count, dtype));
      const sums = oracle.ringSum(
        inputs,
        ring,
        all.map(() => count),
        roundTo(dtype),
      );
      for (const [rank, each] of all.entries())
        write(each.backend, each.out, rounded(dtype, [count], sums.slice(rank * count, (rank + 1) * count)));
    });
  }

  broadcast(x: number, out: number, bytes: number, root: number): void {
    this.#runTogether(`broadcast ${bytes} ${root}`, x, out, (all) => {
      const source = all[root] as Arrival;
      const contents = source.backend.inner.memory.readSync(source.x, bytes);
      for (const each of all) each.backend.inner.memory.write(each.out, contents);
    });
  }

  fold({ parts, stride, own: separatePart, ranks, dtype, sum, factor, out, count }: FoldArgs): void {
    const bytes = storageBits(dtype) / 8;
    const run = (): void => {
      const slots = Array.from({ length: ranks }, (_, i) => {
        if (separatePart?.at === i) return separatePart.address;
        return parts + (separatePart && i > separatePart.at ? i - 1 : i) * stride * bytes;
      });
      const values = slots.map((address) => valuesAt(this.backend, address, count, dtype));
      const ringOrder = values.map((_, i) => i);
      const splits = values.map((_, i) => (i === ranks - 1 ? count : 0));
      const combinedValues =
        sum === undefined
          ? oracle.maximum(values)
          : sum === "f32"
            ? oracle.rankedSum(values, roundTo(dtype))
            : oracle.ringSum(values, ringOrder, splits, roundTo(sum));
      const scaledValues =
        factor === 1
          ? combinedValues
          : combinedValues.map((total) => Math.fround(total * Math.fround(factor)));
      write(this.backend, out, rounded(dtype, [count], scaledValues));
    };
    this.backend.stream.push({ run });
  }

  ended(): undefined {
    return undefined;
  }

  close(): void {}
}

/** Operations of all ranks that the first ready rank has executed for all of them. */
const executed = new WeakSet<object>();

function transfer(source: Post, target: Post): void {
  target.backend.inner.memory.write(
    target.address,
    source.backend.inner.memory.readSync(source.address, source.bytes),
  );
}

const roundingCaches = new Map<WideDType, Map<number, number>>();

/** Rounds to a wide dtype, and caches the result for each value. */
export function roundTo(dtype: WideDType): (x: number) => number {
  const cache = roundingCaches.get(dtype) ?? new Map<number, number>();
  roundingCaches.set(dtype, cache);
  return (x) => {
    if (dtype === "f32" || Object.is(x, -0)) return x;
    const cachedValue = cache.get(x);
    if (cachedValue !== undefined) return cachedValue;
    const roundedValue = wideValues(rounded(dtype, [1], [x]))[0] as number;
    cache.set(x, roundedValue);
    return roundedValue;
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
    readonly membership: Membership,
  ) {
    const { id, rank, ranks } = membership;
    [this.id, this.rank, this.ranks] = [id, rank, ranks];
    this.backend = job.backends[ranks[rank] as number] as QueueingBackend;
    const size = ranks.length;
    const takesRing = (plan: SumPlan): boolean => isRingOf(job.ringsOf(size), plan);
    // a group of one rank has no device communicator
    const devices = (size > 1 ? new Devices(job, membership, this.backend) : undefined) as DeviceRanks;
    this.side = { rank, size, backend: this.backend, devices, takesRing };
  }

  supports<K extends CollectiveName>(op: K, args: CollectiveArgs[K]): Support {
    return supportsCollective(op, args);
  }

  supportsPlan(plan: SumPlan): Support {
    return supportsPlan(plan);
  }

  run<K extends CollectiveName>(op: K, args: CollectiveArgs[K]): void {
    const { id, rank, ranks } = this.membership;
    for (const [member] of ranks.entries()) {
      const flow = member === rank ? undefined : FLOWS[op](args, this.membership, member);
      if (!flow) continue;
      this.job.addFlow([id, "sends", rank, member].join("|"), flow.sends);
      this.job.addFlow([id, "expects", member, rank].join("|"), flow.expects);
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
