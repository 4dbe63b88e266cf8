/** The collective operations of ranks with one device each, composed of exchanges, gathers and kernels that reduce. */
import { memoryOf } from "../../tensor/memory.js";
import { withTemporary } from "../../tensor/storage.js";
import { offsetsOf } from "../arguments.js";
import { bytesOf } from "../bytes.js";
import type { CollectiveArgs, CollectiveName, Reduction } from "../communicator.js";
import { evenSplits, orderOf, type SumPlan } from "../plan.js";
import { type Combination, type DeviceSide, elementBytes, reduceParts } from "./reduce.js";

/** A `DeviceSide` that also knows the order of additions in NCCL's own reduce-scatter. */
export interface RingSide extends DeviceSide {
  /** Whether the library's own reduce-scatter adds in the order of this plan. */
  takesRing(plan: SumPlan): boolean;
}

type RunOf = { readonly [K in CollectiveName]: (side: RingSide, args: CollectiveArgs[K]) => void };

/** Up to this many bytes, each rank receives the tensors of all ranks and reduces them itself, which takes only one exchange. */
const SMALL = 2 ** 15;

/** The number of bytes of a kernel's widest access. Addresses that are multiples of it are fast. */
const ALIGNED = 16;

const NO_ORDER = (size: number): readonly number[] => Array.from({ length: size }, (_, rank) => rank);

export const COLLECTIVES: RunOf = {
  allGather(side, { parts }) {
    if (side.size > 1) side.devices.begin();
    for (const { x, counts, out } of parts)
      gather(
        side,
        x.address,
        out.address,
        counts.map((count) => bytesOf(x, count)),
      );
    if (side.size > 1) side.devices.end();
  },
  reduceScatter(side, { x, counts, reduction, out }) {
    reduce(side, x, counts, reduction, out.address);
  },
  allReduce(side, { x, reduction, out }) {
    const { size, rank, devices } = side;
    if (x.byteLength <= SMALL && size > 1 && !isRing(reduction)) {
      reduceSmall(side, { x, reduction, out });
      return;
    }
    const counts = reduction.reduction === "max" ? evenSplits(x.size, size) : reduction.plan.splits;
    const sizes = counts.map((count) => bytesOf(x, count));
    const ownAddress = out.address + (offsetsOf(sizes)[rank] as number);
    reduce(side, x, counts, reduction, ownAddress);
    if (size === 1) return;
    devices.begin();
    gather(side, ownAddress, out.address, sizes);
    devices.end();
  },
  broadcast(side, { x, root, out }) {
    const { size, devices } = side;
    if (size === 1) copy(side, x.address, out.address, x.byteLength);
    if (size === 1 || x.byteLength === 0) return;
    devices.begin();
    devices.broadcast(x.address, out.address, x.byteLength, root);
    devices.end();
  },
  allToAll(side, { x, sent, received, out }) {
    const { size, rank, devices } = side;
    const sizes = sent.map((count) => bytesOf(x, count));
    const expected = received.map((count) => bytesOf(x, count));
    const [from, to] = [offsetsOf(sizes), offsetsOf(expected)];
    const addressOf = (address: number, offsets: readonly number[], peer: number): number =>
      address + (offsets[peer] as number);
    copy(side, addressOf(x.address, from, rank), addressOf(out.address, to, rank), sizes[rank] as number);
    if (size === 1) return;
    devices.begin();
    for (let peer = 0; peer < size; peer++) {
      if (peer === rank) continue;
      const [sentBytes, receivedBytes] = [sizes[peer] as number, expected[peer] as number];
      if (sentBytes > 0) devices.send(addressOf(x.address, from, peer), sentBytes, peer);
      if (receivedBytes > 0) devices.receive(addressOf(out.address, to, peer), receivedBytes, peer);
    }
    devices.exchange();
    devices.end();
  },
  send({ devices }, { x, to }) {
    devices.begin();
    if (x.byteLength > 0) devices.send(x.address, x.byteLength, to);
    devices.exchange();
    devices.end();
  },
  recv({ devices }, { out, from }) {
    devices.begin();
    if (out.byteLength > 0) devices.receive(out.address, out.byteLength, from);
    devices.exchange();
    devices.end();
  },
  /** Waits for all ranks: a gather of one byte per rank completes after all work that the ranks enqueued before it. */
  agree(side) {
    const { size, devices, backend, rank } = side;
    if (size === 1) return;
    withTemporary(memoryOf(backend), size, (bytes) => {
      devices.begin();
      devices.allGather(bytes + rank, bytes, 1);
      devices.end();
    });
  },
};

function copy({ backend }: DeviceSide, from: number, to: number, bytes: number): void {
  if (bytes > 0 && from !== to) memoryOf(backend).copy(to, from, bytes);
}

function isRing(reduction: Reduction): boolean {
  return reduction.reduction !== "max" && reduction.plan.algorithm === "ring";
}

/** The factor by which a sum is multiplied. */
function factorOf({ size }: DeviceSide, { reduction }: Reduction): number {
  return reduction === "mean" ? 1 / size : 1;
}

/** Multiplies this rank's elements of a sum in place, if the reduction is a mean. */
function multiply(
  side: DeviceSide,
  { dtype }: CollectiveArgs["allReduce"]["x"],
  count: number,
  reduction: Reduction,
  out: number,
): void {
  const factor = factorOf(side, reduction);
  if (factor === 1 || count === 0) return;
  side.devices.fold({ parts: out, stride: count, ranks: 1, dtype, sum: "f32", factor, out, count });
}

/** Returns how this rank combines the inputs for its elements. */
function combinationOf(
  side: DeviceSide,
  { dtype }: CollectiveArgs["allReduce"]["x"],
  reduction: Reduction,
): Combination {
  if (reduction.reduction === "max") return { dtype, order: NO_ORDER(side.size), sum: undefined, factor: 1 };
  const factor = factorOf(side, reduction);
  return { dtype, order: orderOf(reduction.plan, side.rank), sum: reduction.plan.sum, factor };
}

/** Concatenates the data at `ownAddress` of every rank to `out`. Must be called between `begin` and `end`. */
function gather(side: DeviceSide, ownAddress: number, out: number, sizes: readonly number[]): void {
  const { rank, size, devices } = side;
  const offsets = offsetsOf(sizes);
  const ownBytes = sizes[rank] as number;
  if (size > 1 && sizes.every((each) => each === ownBytes)) {
    if (ownBytes > 0) devices.allGather(ownAddress, out, ownBytes);
    return;
  }
  copy(side, ownAddress, out + (offsets[rank] as number), ownBytes);
  for (let peer = 0; peer < size; peer++) {
    if (peer === rank) continue;
    if (ownBytes > 0) devices.send(ownAddress, ownBytes, peer);
    const peerBytes = sizes[peer] as number;
    if (peerBytes > 0) devices.receive(out + (offsets[peer] as number), peerBytes, peer);
  }
  if (size > 1) devices.exchange();
}

function reduce(
  side: RingSide,
  x: CollectiveArgs["allReduce"]["x"],
  counts: readonly number[],
  reduction: Reduction,
  out: number,
): void {
  if (side.size === 1) copy(side, x.address, out, x.byteLength);
  else if (
    reduction.reduction !== "max" &&
    reduction.plan.algorithm === "ring" &&
    side.takesRing(reduction.plan)
  ) {
    reduceRing(side, x, counts, out);
    multiply(side, x, counts[side.rank] as number, reduction, out);
  } else reduceParts(side, { ...combinationOf(side, x, reduction), x: x.address, counts, out });
}

/** Gathers the tensors of all ranks on every rank, and reduces them there. */
function reduceSmall(side: DeviceSide, { x, reduction, out }: CollectiveArgs["allReduce"]): void {
  const { size, devices, backend } = side;
  if (x.byteLength === 0) return;
  withTemporary(memoryOf(backend), size * x.byteLength, (inputs) => {
    devices.begin();
    devices.allGather(x.address, inputs, x.byteLength);
    devices.end();
    const { dtype, sum, factor } = combinationOf(side, x, reduction);
    const count = x.size;
    devices.fold({ parts: inputs, stride: count, ranks: size, dtype, sum, factor, out: out.address, count });
  });
}

/**
 * Runs the library's own reduce-scatter. The library requires the same number of elements for each rank, so shorter inputs are
 * copied and padded with undefined values.
 */
function reduceRing(
  side: DeviceSide,
  { address, dtype }: CollectiveArgs["allReduce"]["x"],
  counts: readonly number[],
  out: number,
): void {
  const { rank, size, devices, backend } = side;
  const bytes = elementBytes(dtype);
  const maxCount = Math.max(...counts);
  if (maxCount === 0) return;
  const ownBytes = (counts[rank] as number) * bytes;
  const run = (x: number, destination: number): void => {
    devices.begin();
    devices.reduceScatter(x, destination, maxCount, dtype);
    devices.end();
  };
  const isEven = counts.every((count) => count === maxCount);
  if (isEven && address % ALIGNED === 0 && out % ALIGNED === 0) {
    run(address, out);
    return;
  }
  const padded = Math.ceil((maxCount * bytes) / ALIGNED) * ALIGNED;
  withTemporary(memoryOf(backend), size * maxCount * bytes + ALIGNED + padded, (paddedInputs) => {
    for (const [peer, begin] of offsetsOf(counts).entries())
      copy(
        side,
        address + begin * bytes,
        paddedInputs + peer * maxCount * bytes,
        (counts[peer] as number) * bytes,
      );
    const result = paddedInputs + Math.ceil((size * maxCount * bytes) / ALIGNED) * ALIGNED;
    run(paddedInputs, result);
    copy(side, result, out, ownBytes);
  });
}
