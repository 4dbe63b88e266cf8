/** A pipeline of ranks gives the bits of one process that runs all stages, one microbatch after the other. */
import * as fc from "fast-check";
import { describe, expect, it, vi } from "vitest";
import type { Backend } from "../../../../src/backends/backend.js";
import { ProcessGroup } from "../../../../src/collectives/group.js";
import { LocalCommunicator } from "../../../../src/collectives/local.js";
import { loopbackOver } from "../../../../src/collectives/loopback/loopback.js";
import {
  ArgumentError,
  DataParallel,
  DistributedError,
  DTypeError,
  differentiable,
  functional,
  Linear,
  Module,
  Pipeline,
  type PipelineOptions,
  RandomState,
  Scope,
  tensor,
  type Variable,
  zeros,
} from "../../../../src/index.js";
import { pipelineSchedule } from "../../../../src/parallel/pipeline/schedule.js";
import { draws } from "../../harness/draws.js";
import { useBackends } from "../../harness/ranks/backends.js";
import { RECIPE_NAMES } from "../../harness/training/run.js";
import { type PipelineCase, pipelineCases, ROWS, trainAlone, trainRank, WIDTH } from "./case.js";

const MOST = 8;
const backends = useBackends(MOST);
const groupsOf = (size: number): ProcessGroup[] => loopbackOver(backends.slice(0, size), 20_000);

/** Runs the programs of all ranks one after another, in the drawn order. Work that waits for other ranks is enqueued. */
async function trainInOrder(plan: PipelineCase, order: readonly number[]) {
  const groups = groupsOf(plan.ranks);
  const sortedGroups = [...groups].sort((a, b) => (order[a.rank] as number) - (order[b.rank] as number));
  const reads = new Map(sortedGroups.map((group) => [group.rank, trainRank(group, plan)]));
  const results = await Promise.all(groups.map(({ rank }) => reads.get(rank)?.()));
  const states = plan.stages.map((_, i) => results[i % plan.ranks]?.states[Math.floor(i / plan.ranks)]);
  return { losses: results.at(-1)?.losses, inputGrads: results[0]?.inputGrads, states };
}

const PLAN: PipelineCase = {
  recipe: "delayed",
  ranks: 2,
  stages: [["linear"], ["mlp"]],
  microbatches: 3,
  dtype: "bf16",
  trained: [true, true],
  caches: false,
  adamw: true,
  trainsInputs: true,
};

/** Two ranks with two stages each. */
const INTERLEAVED: PipelineCase = {
  ...PLAN,
  recipe: "current",
  stages: [["linear"], ["mlp"], ["relu"], ["norm"]],
  microbatches: 4,
  trained: [true, false, true, true],
};

describe("a pipeline", () => {
  it.each(RECIPE_NAMES)("has the bits of one process: %s", async (recipe) => {
    const order = fc.array(fc.nat(), { minLength: MOST, maxLength: MOST });
    await fc.assert(
      fc.asyncProperty(pipelineCases(recipe, MOST), order, async (plan, order) => {
        expect(await trainInOrder(plan, order)).toEqual(await trainAlone(backends[0] as Backend, plan)());
      }),
      {
        numRuns: draws(3, 1),
        endOnFailure: true,
        examples:
          recipe === "current"
            ? [
                [INTERLEAVED, [0, 1]],
                [{ ...INTERLEAVED, ranks: 1 }, [0]],
              ]
            : [],
      },
    );
  });

  it.each([1, 2])("of two chunks on each of %i ranks has the bits of one process", async (ranks) => {
    const stages = Array.from({ length: 2 * ranks }, () => ["linear"] as const);
    const allTrained = stages.map(() => true);
    const plan: PipelineCase = {
      ...PLAN,
      recipe: "current",
      ranks,
      stages,
      trained: allTrained,
      microbatches: 2,
    };
    expect(await trainInOrder(plan, [0, 1])).toEqual(await trainAlone(backends[0] as Backend, plan)());
  });

  it.each([
    { ...PLAN, recipe: "delayed" },
    { ...PLAN, recipe: "nvfp4" },
    { ...PLAN, recipe: "current", stages: [["linear"], ["mlp"], ["relu"], ["norm"]], microbatches: 4 },
  ] satisfies Partial<PipelineCase>[])(
    "of replicas has the bits of the replicas alone: $recipe, stages $stages",
    async (replica) => {
      const plan: PipelineCase = { ...replica, trained: replica.stages.map(() => true) };
      const replicas = await Promise.all(
        groupsOf(2)
          .map((group) => trainAlone(group.backend, plan, { rank: group.rank, size: 2, group }))
          .map((readResult) => readResult()),
      );
      const results = await Promise.all(
        groupsOf(4)
          .map((group) => {
            const { pp, dp } = group.split({ pp: 2, dp: 2 });
            return trainRank(pp, plan, { rank: dp.rank, size: 2, group: dp });
          })
          .map((readResult) => readResult()),
      );
      // consecutive ranks are replicas of the same stage
      expect(results.slice(2).map(({ losses }) => losses)).toEqual(replicas.map(({ losses }) => losses));
      const states = plan.stages.map((_, stage) =>
        results
          .slice(2 * (stage % 2), 2 * (stage % 2) + 2)
          .map(({ states }) => states[Math.floor(stage / 2)]),
      );
      expect(states).toEqual(plan.stages.map((_, stage) => replicas.map(({ states }) => states[stage])));
    },
  );

  it("keeps activations of at most as many microbatches as stages follow, and the losses", () => {
    const backend = backends[0] as Backend;
    const liveBefore = backend.memoryUse().live;
    const loss = zeros(backend, "f32", [1]);
    const bytes = backend.memoryUse().live - liveBefore;
    loss.dispose();
    for (const [stage, extra] of [0, 0, bytes].entries()) {
      const peaks = [4, 5, 9].map(
        (microbatches) => peakOf(backend, stage, 3, microbatches) - extra * microbatches,
      );
      expect(new Set(peaks).size, `bytes at most of stage ${stage}: ${peaks}`).toBe(1);
    }
    expect(peakOf(backend, 0, 3, 9)).toBeGreaterThan(peakOf(backend, 1, 3, 9));
  });
});

/** A group in which only this rank exists: it receives whatever its memory contains. */
function withoutOthers(backend: Backend, rank: number, size: number): ProcessGroup {
  const ranks = Array.from({ length: size }, (_, i) => i);
  const local = new LocalCommunicator(backend, "world", ranks);
  return new ProcessGroup(Object.assign(local, { rank, run: () => undefined }));
}

const LINKS = { sendForward: ["recvForward", 1], sendBackward: ["recvBackward", -1] } as const;

/** Returns the subject, as errors name it, of each action of a rank. The keys are kind, microbatch and stage. */
function subjectsOf(rank: number, ranks: number, chunks: number): ReadonlyMap<string, string> {
  const group = withoutOthers(backends[0] as Backend, rank, ranks);
  const { backend } = group;
  const stages = Array.from({ length: chunks }, () => new Linear(backend, WIDTH, WIDTH));
  const withSubject = vi.spyOn(group, "withSubject");
  const pipeline = new Pipeline(stages.length === 1 ? (stages[0] as Linear) : stages, group, {
    microbatches: MICROBATCHES,
    input: { shape: [ROWS, WIDTH] },
    loss: (y) => functional.mseLoss(y, zeros(backend, "bf16", [ROWS, WIDTH])),
  });
  for (const tensor of pipeline.step(() => zeros(backend, "bf16", [ROWS, WIDTH]))) tensor.dispose();
  for (const stage of stages) stage.dispose();
  const subjects = withSubject.mock.calls.map(([subject]) => subject);
  const position = { stage: rank, stages: ranks, microbatches: MICROBATCHES, chunks };
  return new Map(
    pipelineSchedule(position).map(({ kind, microbatch, chunk }, i) => [
      `${kind} ${microbatch} ${chunk * ranks + rank}`,
      subjects[i] as string,
    ]),
  );
}

const MICROBATCHES = 4;

describe("the subject of a message of a pipeline", () => {
  it.each([
    [2, 1],
    [4, 1],
    [2, 2],
    [4, 3],
  ])(
    "is the same for sender and receiver, with the microbatch and the sending stage: %i ranks, %i chunks",
    (ranks, chunks) => {
      const receipts = new Map(
        Array.from({ length: ranks }, (_, rank) => [...subjectsOf(rank, ranks, chunks)]).flat(),
      );
      for (const [key, subject] of receipts) {
        const [kind, microbatch, stage] = key.split(" ") as [keyof typeof LINKS, string, string];
        const label = `microbatch ${microbatch} of ${MICROBATCHES}`;
        const sentLabel = chunks === 1 ? label : `${label}, stage ${stage} of ${ranks * chunks}`;
        const [receives, step] = LINKS[kind] ?? [];
        if (!kind.startsWith("recv")) expect(subject, key).toBe(sentLabel);
        if (receives)
          expect(receipts.get(`${receives} ${microbatch} ${Number(stage) + step}`), key).toBe(sentLabel);
      }
      const count = (kind: string): number =>
        [...receipts.keys()].filter((key) => key.startsWith(kind)).length;
      expect(count("recv")).toBe(count("send"));
      expect(count("send")).toBe(2 * MICROBATCHES * (ranks * chunks - 1));
    },
  );
});

/** Returns the peak memory of a stage in bytes. */
function peakOf(backend: Backend, stage: number, stages: number, microbatches: number): number {
  const model = new Linear(backend, WIDTH, WIDTH, { random: new RandomState(1n) });
  let peak = 0;
  const pipeline = new Pipeline(model, withoutOthers(backend, stage, stages), {
    microbatches,
    input: { shape: [ROWS, WIDTH] },
    forward: (x) => {
      const y = functional.activation(model.forward(functional.activation(x, "relu")), "relu");
      peak = Math.max(peak, backend.memoryUse().live);
      return y;
    },
    loss: (y) => functional.mseLoss(y, zeros(backend, "bf16", [ROWS, WIDTH])),
  });
  for (const tensor of pipeline.step(() => zeros(backend, "bf16", [ROWS, WIDTH]))) tensor.dispose();
  model.dispose();
  return peak;
}

function failingStage(): never {
  throw new RangeError("a bug of the stage");
}

describe("a pipeline that fails", () => {
  const makers = (changes: readonly Partial<PipelineOptions>[]) => {
    const groups = groupsOf(2);
    const models = groups.map(
      ({ backend }) => new Linear(backend, WIDTH, WIDTH, { random: new RandomState(1n) }),
    );
    const pipelines = groups.map(
      (group, rank) =>
        new Pipeline(models[rank] as Linear, group, {
          microbatches: 3,
          input: { shape: [ROWS, WIDTH] },
          loss: (y) => functional.mseLoss(y, zeros(group.backend, "bf16", [ROWS, WIDTH])),
          ...changes[rank],
        }),
    );
    const end = (): void => {
      for (const model of models) model.dispose();
    };
    return { pipelines, models, groups, end };
  };
  const input = (backend: Backend) => () => zeros(backend, "bf16", [ROWS, WIDTH]);

  it("fails the group with the stage and the reason of the failed stage, and frees all memory", async () => {
    const { pipelines, groups, models, end } = makers([
      {},
      { forward: (x, i) => (i === 1 ? failingStage() : (models[1] as Linear).forward(x)) },
    ]);
    pipelines[0]?.step(input(groups[0]?.backend as Backend));
    expect(() => pipelines[1]?.step()).toThrow(RangeError);
    await expect(models[0]?.weight.grad?.data()).rejects.toThrow(
      /rank 1 ended the group: stage 1 of the pipeline failed: a bug of the stage/,
    );
    expect(() => pipelines[0]?.step(input(groups[0]?.backend as Backend))).toThrow(DistributedError);
    end();
  });

  it("reports a stage that receives activations of another shape or dtype than it expects", async () => {
    const { pipelines, groups, models, end } = makers([
      {},
      { input: { shape: [ROWS, WIDTH], dtype: "f32" } },
    ]);
    pipelines[0]?.step(input(groups[0]?.backend as Backend));
    expect(() => pipelines[1]?.step()).toThrow(/called recv of f32 \[32,32\] from 0 to 1/);
    await expect(models[0]?.weight.grad?.data()).rejects.toThrow(DistributedError);
    end();
  });

  it("reports a stage whose result does not depend on its input", () => {
    const group = withoutOthers(backends[1] as Backend, 1, 2);
    using model = new Linear(group.backend, WIDTH, WIDTH, { random: new RandomState(1n) });
    using _ = new Scope();
    const otherTensor = zeros(group.backend, "bf16", [ROWS, WIDTH]);
    const pipeline = new Pipeline(model, group, {
      microbatches: 1,
      input: { shape: [ROWS, WIDTH] },
      forward: () => model.forward(otherTensor),
      loss: (y) => functional.mseLoss(y, otherTensor),
    });
    expect(() => pipeline.step()).toThrow(/does not depend on its input/);
    model.weight.zeroGrad();
  });

  it.each(["f32", "f16"] as const)(
    "refuses a gradient of a stage's input that is %s, where the input is bf16",
    async (dtype) => {
      const { pipelines, groups, models, end } = makers([
        {},
        {
          forward: (x) => {
            const [copy] = differentiable([x], () => ({
              results: [x.tensor.clone()],
              backward: () => [zeros(x.tensor.backend, dtype, [ROWS, WIDTH])],
            }));
            return (models[1] as Linear).forward(copy);
          },
        },
      ]);
      pipelines[0]?.step(input(groups[0]?.backend as Backend));
      expect(() => pipelines[1]?.step()).toThrow(DTypeError);
      await expect(models[0]?.weight.grad?.data()).rejects.toThrow(
        new RegExp(`stage 1 of the pipeline failed: step: the gradient of the stage's input is ${dtype}`),
      );
      end();
    },
  );

  it("refuses anything but a stage and a group of its backend, and invalid options", () => {
    const [zero, member] = groupsOf(2) as [ProcessGroup, ProcessGroup];
    using model = new Linear(zero.backend, WIDTH, WIDTH);
    using otherLayer = new Linear(zero.backend, WIDTH, WIDTH);
    class Empty extends Module {}
    using nextLayer = new Linear(member.backend, WIDTH, WIDTH);
    using parallel = new DataParallel(otherLayer, zero);
    const loss = (y: Variable): Variable => y;
    const invalidArguments: readonly unknown[][] = [
      [undefined, zero, { microbatches: 1 }],
      [new Empty(zero.backend), zero, { microbatches: 1 }],
      [model, undefined, { microbatches: 1 }],
      [model, member, { microbatches: 1, input: { shape: [1] }, loss }],
      [model, zero, { microbatches: 0 }],
      [model, zero, { microbatches: 65_537 }],
      [model, zero, { microbatches: 2 ** 33 }],
      [model, zero, {}],
      [model, zero, { microbatches: 1, stages: 2 }],
      [model, zero, { microbatches: 1, dataParallel: parallel }],
      [[], zero, { microbatches: 2, input: { shape: [1] } }],
      [[model, model], zero, { microbatches: 2, input: { shape: [1] } }],
      [[model, nextLayer], zero, { microbatches: 2, input: { shape: [1] } }],
      [[model, otherLayer], zero, { microbatches: 2 }],
      [[model, otherLayer], zero, { microbatches: 3, input: { shape: [1] } }],
      [[model, otherLayer], zero, { microbatches: 2, input: { shape: [1] }, dataParallel: parallel }],
      [
        [model, otherLayer],
        zero,
        { microbatches: 2, input: { shape: [1] }, dataParallel: [parallel, parallel] },
      ],
      [otherLayer, zero, { microbatches: 1, dataParallel: [parallel, parallel] }],
      [nextLayer, member, { microbatches: 1, loss }],
      [nextLayer, member, { microbatches: 1, input: { shape: [1] } }],
      [nextLayer, member, { microbatches: 1, input: { shape: [0.5] }, loss }],
      [nextLayer, member, { microbatches: 1, input: { shape: [1], dtype: "i32" }, loss }],
    ];
    for (const args of invalidArguments)
      expect(() => new Pipeline(...(args as [never, never, never])), String(args[2])).toThrow(ArgumentError);
    const [only] = groupsOf(1) as [ProcessGroup];
    const input = { shape: [ROWS, WIDTH] };
    using firstLayer = new Linear(only.backend, WIDTH, WIDTH);
    using secondLayer = new Linear(only.backend, WIDTH, WIDTH);
    const unfit = new Pipeline([firstLayer, secondLayer], only, {
      ...{ microbatches: 1, input, loss, forward: (x: Variable) => functional.add(x, x) },
    });
    using short = zeros(only.backend, "bf16", [1, WIDTH]);
    expect(() => unfit.step(() => short)).toThrow("a stage is bf16 [1,32]; input says bf16 [32,32]");
    using wide = zeros(only.backend, "f32", [ROWS, WIDTH]);
    expect(() => unfit.step(() => wide)).toThrow("a stage is f32 [32,32]; input says bf16 [32,32]");
    // a group of one rank is not aborted, because no other rank waits
    only.allReduce(wide, { out: wide });
    const pipeline = new Pipeline(model, zero, { microbatches: 1 });
    expect(() => pipeline.step()).toThrow(/the first rank needs the microbatches/);
    expect(() => pipeline.step(1 as never)).toThrow(ArgumentError);
    expect(() =>
      new Pipeline(model, zero, { microbatches: 1, forward: () => 1 as never }).step(() =>
        tensor(zero.backend, [1]),
      ),
    ).toThrow(ArgumentError);
  });
});
