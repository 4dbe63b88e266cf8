/** Rows of process groups. */
import type { Communicator } from "../../../../src/collectives/communicator.js";
import { ProcessGroup } from "../../../../src/collectives/group.js";
import { LocalCommunicator } from "../../../../src/collectives/local.js";
import { Linear } from "../../../../src/modules/linear.js";
import type { Parameter } from "../../../../src/modules/parameter.js";
import { DataParallel } from "../../../../src/parallel/data/data-parallel.js";
import { type FullySharded, fullyShard } from "../../../../src/parallel/fsdp/fully-shard.js";
import { Pipeline } from "../../../../src/parallel/pipeline/pipeline.js";
import type { Variable } from "../../../../src/tape/variable.js";
import type { Row, Rows } from "./row.js";
import { trainedLinear } from "./rows-modules.js";
import { SIZE, type World } from "./world.js";

const [ROWS, COLUMNS] = SIZE;

/** A group of one rank. */
export const singleRankGroup = (w: World): ProcessGroup => new ProcessGroup(new LocalCommunicator(w.backend));

/** The first rank of a group of two. The second rank does not exist, because only the checks of arguments are tested. */
function firstOfTwoRanks(w: World): ProcessGroup {
  const local = new LocalCommunicator(w.backend, "two", [0, 1]);
  const run: Communicator["run"] = (op) => local.requireUsable(op);
  return new ProcessGroup(Object.assign(local, { run }));
}

const groupRow = (call: Row["calls"][0], fields: Partial<Row> = {}): Row => ({
  calls: [call],
  self: singleRankGroup,
  ...fields,
});

const layer = (w: World): Linear => w.own(new Linear(w.backend, COLUMNS, 32));

const shardedModules = new WeakMap<World, FullySharded>();

/** One sharded module in each world. The calls name its parameters. */
function shardedModule(w: World): FullySharded {
  const module = shardedModules.get(w) ?? fullyShard(layer(w), singleRankGroup(w));
  shardedModules.set(w, module);
  return module;
}

const firstParameter = (w: World): Parameter => shardedModule(w).module.parameters()[0] as Parameter;

const PLAN = { algorithm: "ring", order: [0], sum: "bf16", splits: [ROWS * COLUMNS] } as const;

export const DISTRIBUTED_ROWS: Rows = {
  "ProcessGroup.allGather": groupRow((w) => [w.tensor(), { rows: [ROWS], out: w.tensor() }], {
    anyType: ["x"],
    writes: ["options.out"],
  }),
  "ProcessGroup.reduceScatter": groupRow(
    (w) => [w.tensor(), { reduction: "sum", plan: PLAN, rows: [ROWS], out: w.tensor() }],
    { writes: ["options.out"] },
  ),
  "ProcessGroup.allReduce": groupRow((w) => [w.tensor(), { reduction: "sum", plan: PLAN, out: w.tensor() }], {
    writes: ["options.out"],
    inPlace: ["x"],
  }),
  "ProcessGroup.sumPlan": groupRow((w) => ["reduceScatter", w.tensor(), { plan: PLAN, rows: [ROWS] }], {
    survivesDispose: true,
  }),
  "ProcessGroup.supports": groupRow(() => [PLAN], { survivesDispose: true }),
  "ProcessGroup.broadcast": groupRow((w) => [w.tensor(), { root: 0, out: w.tensor() }], {
    anyType: ["x"],
    numbers: { "options.root": "index" },
    writes: ["options.out"],
    inPlace: ["x"],
  }),
  "ProcessGroup.allToAll": groupRow(
    (w) => [w.tensor(), { sent: [ROWS], received: [ROWS], out: w.tensor() }],
    {
      anyType: ["x"],
      writes: ["options.out"],
    },
  ),
  "ProcessGroup.send": groupRow((w) => [w.tensor(), 1], {
    self: firstOfTwoRanks,
    anyType: ["x"],
    numbers: { to: "index" },
  }),
  "ProcessGroup.recv": groupRow((w) => [w.tensor(), 1], {
    self: firstOfTwoRanks,
    anyType: ["out"],
    numbers: { from: "index" },
    writes: ["out"],
  }),
  DataParallel: {
    calls: [
      (w) => [
        trainedLinear(w),
        singleRankGroup(w),
        { reduction: "mean", bucketBytes: 1024, plan: { algorithm: "ring", order: [0] } },
      ],
    ],
    numbers: { "options.bucketBytes": "count" },
  },
  "DataParallel.noSync": {
    calls: [() => [() => 1]],
    self: (w) => new DataParallel(trainedLinear(w), singleRankGroup(w)),
    survivesDispose: true,
  },
  Pipeline: {
    calls: [
      (w) => {
        const [stage, group] = [trainedLinear(w), singleRankGroup(w)];
        const dataParallel = new DataParallel(stage, group);
        const identity = (x: Variable): Variable => x;
        const input = { shape: [ROWS, COLUMNS], dtype: "bf16" } as const;
        return [stage, group, { microbatches: 2, input, loss: identity, forward: identity, dataParallel }];
      },
      (w) => {
        const [stages, group] = [[trainedLinear(w), trainedLinear(w)], singleRankGroup(w)];
        const dataParallel = stages.map((stage) => new DataParallel(stage, group));
        const input = { shape: [ROWS, COLUMNS] } as const;
        return [stages, group, { microbatches: 2, input, loss: (x: Variable) => x, dataParallel }];
      },
    ],
    numbers: { "options.microbatches": "count" },
  },
  "Pipeline.step": {
    calls: [(w) => [() => w.tensor()]],
    self: (w) => {
      const stage = trainedLinear(w);
      for (const parameter of stage.parameters()) parameter.requiresGrad = false;
      return new Pipeline(stage, singleRankGroup(w), { microbatches: 1, forward: (x) => x, loss: (y) => y });
    },
    survivesDispose: true,
  },
  pipelineSchedule: {
    calls: [
      () => [{ stage: 0, stages: 2, microbatches: 3 }],
      () => [{ stage: 0, stages: 1, microbatches: 3, chunks: 2 }],
    ],
    numbers: {
      ...{ "place.stage": "index", "place.stages": "count" },
      ...{ "place.microbatches": "count", "place.chunks": "count" },
    },
  },
  fullyShard: {
    calls: [
      (w) => [
        layer(w),
        singleRankGroup(w),
        {
          ...{ reduction: "mean", plan: { algorithm: "ring", order: [0] }, rowMultiple: 16 },
          ...{ mesh: { replicate: 1, shard: 1 }, replicatePlan: { algorithm: "ring", order: [0] } },
        },
      ],
    ],
    numbers: {
      ...{ "options.rowMultiple": "count", "options.mesh.replicate": "count", "options.mesh.shard": "count" },
    },
  },
  "FullySharded.noSync": {
    calls: [() => [() => 1]],
    self: shardedModule,
    survivesDispose: true,
  },
  "FullySharded.rowsOf": { calls: [(w) => [firstParameter(w)]], self: shardedModule, survivesDispose: true },
  "FullySharded.gather": {
    calls: [(w) => [firstParameter(w), firstParameter(w).tensor]],
    self: shardedModule,
    survivesDispose: true,
    exemptions: { localRows: "its shape is that of the parameter's rows" },
  },
  broadcastParameters: {
    calls: [(w) => [trainedLinear(w), singleRankGroup(w), 0]],
    numbers: { root: "index" },
  },
  "ProcessGroup.split": groupRow(() => [{ tp: 1, cp: 1, dp: 1, pp: 1 }], {
    numbers: { "mesh.tp": "count", "mesh.cp": "count", "mesh.dp": "count", "mesh.pp": "count" },
  }),
  "ProcessGroup.reduceMax": groupRow((w) => [[w.tensor("f32")]]),
  "ProcessGroup.abort": groupRow(() => ["the loss is not a number"], { survivesDispose: true }),
  openProcessGroup: {
    calls: [
      (w) => [
        w.backend,
        {
          rank: 0,
          size: 1,
          address: "localhost",
          port: 29500,
          token: "the job's own",
          timeoutMs: 1000,
          transport: "host",
        },
      ],
    ],
    numbers: {
      "options.rank": "index",
      "options.size": "count",
      "options.port": "count",
      "options.timeoutMs": "count",
    },
    isSlow: true,
  },
  loopbackGroup: {
    calls: [() => [2, { threads: 1, datapath: "hopper", timeoutMs: 1000 }]],
    numbers: { size: "count", "options.threads": "count", "options.timeoutMs": "count" },
    isSlow: true,
  },
};
