/** Runs training and records all state after each step as whole tensors, whether or not ranks store only parts of them. */
import { createHash } from "node:crypto";
import type { Backend } from "../../../../src/backends/backend.js";
import type { ProcessGroup } from "../../../../src/distributed/group.js";
import { loopbackOver } from "../../../../src/distributed/loopback/loopback.js";
import { gatherQuantized } from "../../../../src/distributed/quantized.js";
import {
  add,
  DataParallel,
  type FullySharded,
  fullyShard,
  type Optimizer,
  type Parameter,
  QuantizedTensor,
  Scope,
  scaled,
  type Tensor,
  type WideDType,
} from "../../../../src/index.js";
import { persistent } from "../../../../src/modules/parameter.js";
import { castTo } from "../../../../src/ops/cast/cast.js";
import { type Case, Replica } from "./case.js";

/** Named tensors. They are read after all ranks have run the step. */
type Seen = readonly (readonly [name: string, x: Tensor])[];

/** One rank of a run. */
interface Rank {
  step(number: number): Seen;
  dispose(): void;
}

const bytesOf = async (x: Tensor): Promise<string> =>
  createHash("sha256")
    .update(new Uint8Array((await x.data()).buffer as ArrayBuffer))
    .digest("hex")
    .slice(0, 12);

const clones = (members: readonly Tensor[]): Tensor[] => members.map((each) => persistent(each.clone()));

/** Returns parameters, masters and optimizer states. `whole` gathers each of them from its stored form. */
function stateOf(
  optimizer: Optimizer,
  whole: (parameter: Parameter, x: Tensor) => Tensor,
  quantized: (parameter: Parameter, x: QuantizedTensor) => QuantizedTensor,
): Seen {
  using _ = new Scope();
  return [...optimizer.slots].flatMap(([name, { parameter, master, buffers }]) => {
    const { value } = parameter;
    const members =
      value instanceof QuantizedTensor ? quantized(parameter, value).members : [whole(parameter, value)];
    return [
      ...clones(members).map((x, i) => [`${name} value ${i}`, x] as const),
      ...clones([whole(parameter, master)]).map((x) => [`${name} master`, x] as const),
      ...[...buffers].map(
        ([buffer, x]) => [`${name} ${buffer}`, clones([whole(parameter, x)])[0] as Tensor] as const,
      ),
    ];
  });
}

const numbersOf = ({ ranks: _, microbatches }: Case, rank: number): readonly number[] =>
  Array.from({ length: microbatches }, (_, i) => rank * microbatches + i);

/** Runs the passes of a step on one rank. All passes except the last run without communication. */
function passes(
  replica: Replica,
  { step, rank }: { readonly step: number; readonly rank: number },
  noSync: (body: () => void) => void,
): Seen {
  const numbers = numbersOf(replica.given, rank);
  const losses: Tensor[] = [];
  const one = (number: number, i: number): void =>
    void losses.push(persistent(replica.pass(step, number, i === 0)));
  noSync(() => numbers.slice(0, -1).forEach(one));
  one(numbers.at(-1) as number, numbers.length - 1);
  if (replica.given.evaluated.length > 0) losses.push(persistent(replica.evaluate()));
  return losses.map((x, i) => [`loss ${rank} ${i}`, x]);
}

function scalesOf({ model }: Replica): readonly string[] {
  return [...model.namedQuantizations()].flatMap(([name, each]) =>
    Object.entries(each.snapshotSync() ?? {}).map(
      ([pass, { scale, amaxHistory }]) => `${name} ${pass} ${scale} ${amaxHistory}`,
    ),
  );
}

function sharedRank(
  group: ProcessGroup,
  given: Case,
  optionsOf: Partial<Case>,
): Rank & { replica: Replica; sharded: FullySharded } {
  const replica = new Replica(group.backend, given);
  const { reduction, rowMultiple } = { ...given, ...optionsOf };
  const sharded = fullyShard(replica.model, group, { reduction, rowMultiple });
  const optimizer = replica.optimizer();
  const usage = { rowwise: true, columnwise: true };
  return {
    replica,
    sharded,
    step(step) {
      const losses = passes(replica, { step, rank: group.rank }, (body) => sharded.noSync(body));
      optimizer.step();
      optimizer.zeroGrad();
      const state = stateOf(
        optimizer,
        (parameter, x) => sharded.gather(parameter, x),
        (parameter, x) => gatherQuantized(group, x, usage, x.quantizer, sharded.rowsOf(parameter)),
      );
      return [...losses, ...state];
    },
    dispose() {
      optimizer.dispose();
      replica.model.dispose();
    },
  };
}

function copiedRank(group: ProcessGroup, given: Case): Rank & { replica: Replica } {
  const replica = new Replica(group.backend, given);
  const parallel = new DataParallel(replica.model, group, { reduction: given.reduction });
  const optimizer = replica.optimizer();
  return {
    replica,
    step(step) {
      const losses = passes(replica, { step, rank: group.rank }, (body) => parallel.noSync(body));
      optimizer.step();
      optimizer.zeroGrad();
      return [
        ...losses,
        ...stateOf(
          optimizer,
          (_, x) => x,
          (_, x) => x,
        ),
      ];
    },
    dispose() {
      parallel.dispose();
      optimizer.dispose();
      replica.model.dispose();
    },
  };
}

async function read(seen: Seen): Promise<readonly string[]> {
  const texts: string[] = [];
  for (const [name, x] of seen) {
    texts.push(`${name} ${x.dtype} [${x.shape}] ${await bytesOf(x)}`);
    x.dispose();
  }
  return texts;
}

/** Runs all ranks and returns the recorded state of each rank after each step. */
async function ranksRun(
  groups: readonly ProcessGroup[],
  make: (group: ProcessGroup) => Rank & { replica: Replica },
  steps: number,
): Promise<string[][]> {
  const ranks = groups.map(make);
  const texts: string[][] = ranks.map(() => []);
  for (let step = 0; step < steps; step++) {
    const seen = ranks.map((rank) => rank.step(step));
    for (const [i, each] of seen.entries()) texts[i]?.push(...(await read(each)));
    for (const [i, { replica }] of ranks.entries()) texts[i]?.push(...scalesOf(replica));
  }
  for (const rank of ranks) rank.dispose();
  return texts;
}

export function shardedRun(backends: readonly Backend[], given: Case, steps: number): Promise<string[][]> {
  const groups = loopbackOver(backends.slice(0, given.ranks), 20_000);
  return ranksRun(groups, (group) => sharedRank(group, given, {}), steps);
}

export function copiedRun(backends: readonly Backend[], given: Case, steps: number): Promise<string[][]> {
  const groups = loopbackOver(backends.slice(0, given.ranks), 20_000);
  return ranksRun(groups, (group) => copiedRank(group, given), steps);
}

/** The sum of the gradients of all ranks, added in f32 in order of ranks and rounded once, or the mean. */
function summed(grads: readonly Tensor<WideDType>[], isMean: boolean): Tensor<WideDType> {
  const [first, ...others] = grads as [Tensor<WideDType>, ...Tensor<WideDType>[]];
  const total = others.reduce((sum, each) => add(sum, each, { outDtype: "f32" }), first);
  const sum = castTo(total, first.dtype);
  return isMean ? scaled(sum, 1 / grads.length, { outDtype: first.dtype }) : sum;
}

/**
 * Trains in one process, which computes the gradients of all ranks one after another, each with its own random state and scales.
 */
export async function oneProcess(backend: Backend, given: Case, steps: number): Promise<string[][]> {
  const replicas = Array.from({ length: given.ranks }, () => new Replica(backend, given));
  const optimizers = replicas.map((each) => each.optimizer());
  const texts: string[][] = replicas.map(() => []);
  for (let step = 0; step < steps; step++) {
    for (const [rank, replica] of replicas.entries())
      texts[rank]?.push(...(await read(passes(replica, { step, rank }, (body) => body()))));
    const [first] = replicas as [Replica];
    for (const [i, { requiresGrad }] of first.model.parameters().entries()) {
      if (!requiresGrad) continue;
      using _ = new Scope();
      const all = replicas.map(({ model }) => model.parameters()[i] as Parameter);
      const grads = all.flatMap(({ grad }) => grad ?? []);
      if (grads.length === 0) continue;
      const sum = summed(grads, given.reduction === "mean");
      for (const each of all) each.grad?.paste(sum.clone(), 0);
    }
    for (const [rank, optimizer] of optimizers.entries()) {
      optimizer.step();
      optimizer.zeroGrad();
      texts[rank]?.push(
        ...(await read(
          stateOf(
            optimizer,
            (_, x) => x,
            (_, x) => x,
          ),
        )),
      );
      texts[rank]?.push(...scalesOf(replicas[rank] as Replica));
    }
  }
  for (const optimizer of optimizers) optimizer.dispose();
  for (const { model } of replicas) model.dispose();
  return texts;
}
