/** All-gathers of sharded parameters on the side stream, in buckets. */
import { sum } from "../../collectives/arguments.js";
import type { GatherRequest, ProcessGroup } from "../../collectives/group.js";
import { onSideStream } from "../../ops/side-stream.js";
import type { AmaxReductionGroup } from "../../quantizers/shard.js";
import type { PendingGather, StartGather } from "../../tape/sharding.js";
import { Scope } from "../../tensor/scope.js";
import { byteLength } from "../../tensor/shape.js";
import type { Tensor } from "../../tensor/tensor.js";
import { BUCKET_BYTES } from "../data/buckets.js";

/**
 * Starts and completes all-gathers on the side stream: one all-reduce of amaxes for each group, then all-gathers in buckets of
 * `BUCKET_BYTES`, so that the first parameters are ready early. `key` names the operation in messages. If the function throws, it
 * has freed all gathers.
 */
export function gatherInBuckets(
  group: ProcessGroup,
  key: string,
  starts: readonly StartGather[],
): PendingGather[] {
  const pendingGathers: PendingGather[] = [];
  if (starts.length === 0) return pendingGathers;
  const { backend } = group;
  try {
    onSideStream(backend, () => {
      using _ = new Scope();
      for (const start of starts) {
        const gather = start();
        if (gather) pendingGathers.push(gather);
      }
      reduceAmaxes(pendingGathers);
    });
    const queue = [...pendingGathers];
    while (queue.length > 0)
      onSideStream(backend, () => group.withSubject(`parameters, ${key}`, () => gatherBucket(group, queue)));
    return pendingGathers;
  } catch (error) {
    for (const gather of pendingGathers) gather.dispose();
    throw error;
  }
}

/** Reduces the amaxes of each rank's rows to the amaxes of the full parameters, with one call for each group. */
function reduceAmaxes(pendingGathers: readonly PendingGather[]): void {
  const byGroup = new Map<AmaxReductionGroup, Tensor<"f32">[]>();
  for (const { amaxes } of pendingGathers)
    if (amaxes) byGroup.set(amaxes.group, [...(byGroup.get(amaxes.group) ?? []), ...amaxes.local]);
  for (const [group, amaxes] of byGroup) group.reduceMax(amaxes);
}

/** Completes gathers from the front of `queue`, until they have `BUCKET_BYTES`, in one exchange. Removes them from `queue`. */
function gatherBucket(group: ProcessGroup, queue: PendingGather[]): void {
  using _ = new Scope();
  const bucket: { readonly gather: PendingGather; readonly requests: readonly GatherRequest[] }[] = [];
  for (let bytes = 0; queue.length > 0 && bytes < BUCKET_BYTES; ) {
    const gather = queue.shift() as PendingGather;
    const requests = gather.requests();
    bucket.push({ gather, requests });
    for (const request of requests) bytes += gatheredBytes(group, request);
  }
  const gatheredTensors: Tensor[] = group.allGatherCoalesced(bucket.flatMap(({ requests }) => requests));
  for (const { gather, requests } of bucket) gather.complete(gatheredTensors.splice(0, requests.length));
}

/** Returns the size of the result of a request. The size is equal on all ranks, so all ranks form the same buckets. */
function gatheredBytes(group: ProcessGroup, { x: { dtype, shape }, rows }: GatherRequest): number {
  const allRows = rows ? sum(rows) : (shape[0] ?? 1) * group.size;
  return byteLength(dtype, [allRows, ...shape.slice(1)]);
}
