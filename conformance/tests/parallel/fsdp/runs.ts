/** Runs training and records all state after each step, as full tensors even if ranks store only parts of them. */
import { createHash } from "node:crypto";
import type { Backend } from "../../../../src/backends/backend.js";
import type { ProcessGroup } from "../../../../src/collectives/group.js";
import { loopbackOver } from "../../../../src/collectives/loopback/loopback.js";
import { gatherQuantized } from "../../../../src/collectives/quantized.js";
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
  zeros,
} from "../../../../src/index.js";
import { persistent } from "../../../../src/modules/parameter.js";
import { castTo } from "../../../../src/ops/cast/cast.js";
import type { Sharding } from "../../../../src/tape/sharding.js";
import { type Case, Replica, turnOf } from "./case.js";
import { endStep, SavedState } from "./step-end.js";

/** Named tensors. They are read after all ranks have run the step. */
type NamedTensors = readonly (readonly [name: string, x: Tensor])[];

/** One rank of a run. */
interface Rank {
  readonly replica: Replica;
  readonly state: SavedState;
  step(number: number): NamedTensors;
  dispose(): void;
}

const bytesOf = async (x: Tensor): Promise<string> =>
  createHash("sha256")
    .update(new Uint8Array((await x.data()).buffer as ArrayBuffer))
    .digest("hex")
    .slice(0, 12);

const cloneAll = (members: readonly Tensor[]): Tensor[] =>
  members.map((member) => persistent(member.clone()));

/** Returns parameters, masters and optimizer states. `gatherFull` gathers each full tensor from the stored one. */
function stateOf(
  optimizer: Optimizer,
  gatherFull: (parameter: Parameter, x: Tensor) => Tensor,
  quantizedState: (parameter: Parameter, x: QuantizedTensor) => QuantizedTensor,
): NamedTensors {
  using _ = new Scope();
  return [...optimizer.slots].flatMap(([name, { parameter, master, buffers, steps }]) => {
    const { value } = parameter;
    const members =
      value instanceof QuantizedTensor
        ? quantizedState(parameter, value).members
        : [gatherFull(parameter, value)];
    return [
      ...cloneAll(members).map((x, i) => [`${name} value ${i} after ${steps} steps`, x] as const),
      ...cloneAll([gatherFull(parameter, master)]).map((x) => [`${name} master`, x] as const),
      ...[...buffers].map(
        ([buffer, x]) =>
          [
            `${name} ${buffer}`,
            // every rank has the scale of the full tensor
            cloneAll([buffer.endsWith(".scale") ? x : gatherFull(parameter, x)])[0] as Tensor,
          ] as const,
      ),
    ];
  });
}

const numbersOf = ({ ranks: _, microbatches }: Case, rank: number): readonly number[] =>
  Array.from({ length: microbatches }, (_, i) => rank * microbatches + i);

/** Runs one pass of a step on one rank, and after the last pass the end of the step. */
function pass(replica: Replica, rank: number, step: number, index: number): NamedTensors {
  const numbers = numbersOf(replica.given, rank);
  const losses: Tensor[] = [persistent(replica.pass(step, numbers[index] as number, index))];
  const isLast = index === numbers.length - 1;
  if (isLast && replica.given.evaluated.length > 0) losses.push(persistent(replica.evaluate(step)));
  return losses.map((x, i) => [`loss ${rank} ${index + i}`, x]);
}

/** Whether the pass reduces gradients. */
const isSynced = (testCase: Case, step: number, index: number): boolean =>
  turnOf(testCase, step).synced || index === testCase.microbatches - 1;

/** Whether `backwardDw` is called after each pass. */
const endsWithDw = ({ delays }: Case): boolean => delays === "pass" || delays === "layers";

/** Runs the passes of a step on one rank. Passes that do not reduce gradients need no communication. */
function passes(
  replica: Replica,
  rank: number,
  step: number,
  noSync: (body: () => NamedTensors) => NamedTensors,
): NamedTensors {
  const { given: testCase } = replica;
  const inSync = (isSynced: boolean, body: () => NamedTensors): NamedTensors =>
    isSynced ? body() : noSync(body);
  const computeDelayed = (): NamedTensors => {
    replica.backwardDw();
    return [];
  };
  const numbers = numbersOf(testCase, rank);
  const tensors = numbers.flatMap((_, index) =>
    inSync(isSynced(testCase, step, index), () => [
      ...pass(replica, rank, step, index),
      ...(endsWithDw(testCase) ? computeDelayed() : []),
    ]),
  );
  const calls = testCase.delays === "step" ? replica.delayedCalls(step) : 0;
  for (let index = 0; index < calls; index++)
    inSync(turnOf(testCase, step).synced || index === calls - 1, computeDelayed);
  return tensors;
}

function scalesOf({ model }: Replica): readonly string[] {
  return [...model.namedQuantizations()].flatMap(([name, quantization]) =>
    Object.entries(quantization.snapshotSync() ?? {}).map(
      ([pass, { scale, amaxHistory }]) => `${name} ${pass} ${scale} ${amaxHistory}`,
    ),
  );
}

function sharedRank(group: ProcessGroup, testCase: Case): Rank & { sharded: FullySharded } {
  const replica = new Replica(group.backend, testCase);
  const { reduction, rowMultiple, replicate, ranks } = testCase;
  const mesh = replicate === undefined ? undefined : { replicate, shard: ranks / replicate };
  const shardedModule = fullyShard(replica.model, group, { reduction, rowMultiple, mesh });
  const optimizer = replica.optimizer();
  const usage = { rowwise: true, columnwise: true };
  return {
    replica,
    sharded: shardedModule,
    state: new SavedState(replica.model, optimizer),
    step(step) {
      const losses = passes(replica, group.rank, step, (body) => shardedModule.noSync(body));
      endStep(optimizer, turnOf(testCase, step));
      const state = stateOf(
        optimizer,
        (parameter, x) => shardedModule.gather(parameter, x),
        (parameter, x) => {
          const { group: shard, rowsPerRank } = parameter.sharding as Sharding;
          return gatherQuantized(shard, x, usage, x.quantizer, rowsPerRank);
        },
      );
      return [...losses, ...state];
    },
    dispose() {
      optimizer.dispose();
      replica.model.dispose();
    },
  };
}

function copiedRank(group: ProcessGroup, testCase: Case): Rank {
  const replica = new Replica(group.backend, testCase);
  const parallel = new DataParallel(replica.model, group, { reduction: testCase.reduction });
  const optimizer = replica.optimizer();
  return {
    replica,
    state: new SavedState(replica.model, optimizer),
    step(step) {
      const losses = passes(replica, group.rank, step, (body) => parallel.noSync(body));
      endStep(optimizer, turnOf(testCase, step));
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

async function readBits(tensors: NamedTensors): Promise<readonly string[]> {
  const texts: string[] = [];
  for (const [name, x] of tensors) {
    texts.push(`${name} ${x.dtype} [${x.shape}] ${await bytesOf(x)}`);
    x.dispose();
  }
  return texts;
}

/** Runs all ranks and returns the recorded state of each rank after each step. */
async function ranksRun(
  groups: readonly ProcessGroup[],
  make: (group: ProcessGroup) => Rank,
  steps: number,
): Promise<string[][]> {
  const ranks = groups.map(make);
  const texts: string[][] = ranks.map(() => []);
  for (let step = 0; step < steps; step++) {
    const results = ranks.map((rank) => rank.step(step));
    for (const [i, tensors] of results.entries()) texts[i]?.push(...(await readBits(tensors)));
    for (const [i, { replica }] of ranks.entries()) texts[i]?.push(...scalesOf(replica));
    for (const { state, replica } of ranks) state.follow(turnOf(replica.given, step));
  }
  for (const { state } of ranks) state.dispose();
  for (const rank of ranks) rank.dispose();
  return texts;
}

export function shardedRun(backends: readonly Backend[], testCase: Case, steps: number): Promise<string[][]> {
  const groups = loopbackOver(backends.slice(0, testCase.ranks), 20_000);
  return ranksRun(groups, (group) => sharedRank(group, testCase), steps);
}

export function copiedRun(backends: readonly Backend[], testCase: Case, steps: number): Promise<string[][]> {
  const groups = loopbackOver(backends.slice(0, testCase.ranks), 20_000);
  return ranksRun(groups, (group) => copiedRank(group, testCase), steps);
}

/** The sum of the gradients of all ranks, added in f32 in order of ranks and rounded once, or the mean. */
function sumGrads(grads: readonly Tensor<WideDType>[], isMean: boolean): Tensor<WideDType> {
  const [firstGrad, ...otherGrads] = grads as [Tensor<WideDType>, ...Tensor<WideDType>[]];
  const total = otherGrads.reduce((sum, grad) => add(sum, grad, { outDtype: "f32" }), firstGrad);
  const sum = castTo(total, firstGrad.dtype);
  return isMean ? scaled(sum, 1 / grads.length, { outDtype: firstGrad.dtype }) : sum;
}

/** The gradients of all ranks, summed over each copy of the parameters, whose ranks are consecutive, then over the copies. */
function reducedOf(
  grads: readonly Tensor<WideDType>[],
  { ranks, replicate = 1, reduction }: Case,
): Tensor<WideDType> {
  const [isMean, shard] = [reduction === "mean", ranks / replicate];
  const copies = Array.from({ length: replicate }, (_, i) => grads.slice(i * shard, (i + 1) * shard));
  return sumGrads(
    copies.map((copy) => sumGrads(copy, isMean)),
    isMean,
  );
}

/** The gradients of all ranks in one process. */
class Gradients {
  /** The gradients that passes have reduced over ranks, by the number of the parameter. */
  readonly #reduced = new Map<number, Tensor<WideDType>>();

  constructor(
    private readonly replicas: readonly Replica[],
    private readonly given: Case,
  ) {}

  /** The gradient of a parameter on one rank: f32 if it has a `mainGrad`, to which a `grad` is added. */
  #gradOf({ grad, mainGrad }: Parameter): readonly Tensor<WideDType>[] {
    if (!mainGrad) return grad ? [grad] : [];
    return [grad ? add(mainGrad, grad) : mainGrad];
  }

  #each(body: (copies: readonly Parameter[], i: number) => void): void {
    const [firstReplica] = this.replicas as [Replica];
    for (const i of firstReplica.model.parameters().keys())
      body(
        this.replicas.map(({ model }) => model.parameters()[i] as Parameter),
        i,
      );
  }

  /** Adds the gradients of a pass to the unreduced gradients of earlier passes. */
  begin(): void {
    this.#each((copies) => {
      for (const parameter of copies) parameter.clearGrads();
    });
  }

  reduce(): void {
    this.#each((copies, i) => {
      using _ = new Scope();
      const grads = copies.flatMap((parameter) => this.#gradOf(parameter));
      const [firstGrad] = grads;
      if (!firstGrad) return;
      const previousSum = this.#reduced.get(i);
      const sum = reducedOf(grads, this.given);
      // a mainGrad is zero before the first pass of a step
      const start = previousSum ?? (copies[0]?.mainGrad && zeros(sum.backend, "f32", sum.shape));
      this.#reduced.set(i, persistent(start ? add(start, sum) : sum.clone()));
      previousSum?.dispose();
      for (const parameter of copies) parameter.clearGrads();
    });
  }

  /** Gives every replica the reduced gradients, for its optimizer. */
  end(): void {
    this.#each((copies, i) => {
      const sum = this.#reduced.get(i);
      if (!sum) return;
      for (const parameter of copies)
        if (parameter.mainGrad) parameter.mainGrad.paste(sum as Tensor<"f32">, 0);
        else parameter.grad = persistent(sum.clone());
    });
  }

  zero(): void {
    for (const tensor of this.#reduced.values()) tensor.dispose();
    this.#reduced.clear();
  }
}

/**
 * Trains in one process, which computes the gradients of all ranks one after another, each with its own random state and scales.
 */
export async function oneProcess(backend: Backend, testCase: Case, steps: number): Promise<string[][]> {
  const replicas = Array.from({ length: testCase.ranks }, () => new Replica(backend, testCase));
  const optimizers = replicas.map((replica) => replica.optimizer());
  const states = replicas.map(({ model }, i) => new SavedState(model, optimizers[i] as Optimizer));
  const gradients = new Gradients(replicas, testCase);
  const texts: string[][] = replicas.map(() => []);
  for (let step = 0; step < steps; step++) {
    const settings = turnOf(testCase, step);
    gradients.begin();
    for (let index = 0; index < testCase.microbatches; index++) {
      for (const [rank, replica] of replicas.entries())
        texts[rank]?.push(...(await readBits(pass(replica, rank, step, index))));
      if (endsWithDw(testCase)) for (const replica of replicas) replica.backwardDw();
      if (isSynced(testCase, step, index)) gradients.reduce();
    }
    const calls = testCase.delays === "step" ? (replicas[0] as Replica).delayedCalls(step) : 0;
    for (let index = 0; index < calls; index++) {
      for (const replica of replicas) replica.backwardDw();
      if (settings.synced || index === calls - 1) gradients.reduce();
    }
    gradients.end();
    for (const [rank, optimizer] of optimizers.entries()) {
      endStep(optimizer, settings);
      texts[rank]?.push(
        ...(await readBits(
          stateOf(
            optimizer,
            (_, x) => x,
            (_, x) => x,
          ),
        )),
      );
      texts[rank]?.push(...scalesOf(replicas[rank] as Replica));
      states[rank]?.follow(settings);
    }
    if (settings.zeroes || settings.state === "loaded") gradients.zero();
  }
  gradients.zero();
  for (const disposable of [...states, ...optimizers]) disposable.dispose();
  for (const { model } of replicas) model.dispose();
  return texts;
}
