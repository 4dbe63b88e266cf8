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
import { trained } from "./rows-modules.js";
import { SIZE, type World } from "./world.js";

const [ROWS, COLUMNS] = SIZE;

/** A group of one rank. */
export const alone = (w: World): ProcessGroup => new ProcessGroup(new LocalCommunicator(w.backend));

/** The first rank of a group of two. The second rank does not exist, because only the checks of arguments are tested. */
function ofTwo(w: World): ProcessGroup {
  const local = new LocalCommunicator(w.backend, "two", [0, 1]);
  const run: Communicator["run"] = (op) => local.requireUsable(op);
  return new ProcessGroup(Object.assign(local, { run }));
}

const onGroup = (call: Row["calls"][0], rest: Partial<Row> = {}): Row => ({
  calls: [call],
  self: alone,
  ...rest,
});

const layer = (w: World): Linear => w.own(new Linear(w.backend, COLUMNS, 32));

const shardedOf = new WeakMap<World, FullySharded>();

/** One sharded module in each world. The calls name its parameters. */
function sharded(w: World): FullySharded {
  const module = shardedOf.get(w) ?? fullyShard(layer(w), alone(w));
  shardedOf.set(w, module);
  return module;
}

const firstOf = (w: World): Parameter => sharded(w).module.parameters()[0] as Parameter;

const PLAN = { algorithm: "ring", order: [0], sum: "bf16", splits: [ROWS * COLUMNS] } as const;

export const DISTRIBUTED_ROWS: Rows = {
  "ProcessGroup.allGather": onGroup((w) => [w.tensor(), { rows: [ROWS], out: w.tensor() }], {
    anyType: ["x"],
    writes: ["options.out"],
  }),
  "ProcessGroup.reduceScatter": onGroup(
    (w) => [w.tensor(), { reduction: "sum", plan: PLAN, rows: [ROWS], out: w.tensor() }],
    { writes: ["options.out"] },
  ),
  "ProcessGroup.allReduce": onGroup((w) => [w.tensor(), { reduction: "sum", plan: PLAN, out: w.tensor() }], {
    writes: ["options.out"],
    inPlace: ["x"],
  }),
  "ProcessGroup.sumPlan": onGroup((w) => ["reduceScatter", w.tensor(), { plan: PLAN, rows: [ROWS] }], {
    outlives: true,
  }),
  "ProcessGroup.supports": onGroup(() => [PLAN], { outlives: true }),
  "ProcessGroup.broadcast": onGroup((w) => [w.tensor(), { root: 0, out: w.tensor() }], {
    anyType: ["x"],
    numbers: { "options.root": "index" },
    writes: ["options.out"],
    inPlace: ["x"],
  }),
  "ProcessGroup.allToAll": onGroup((w) => [w.tensor(), { sent: [ROWS], received: [ROWS], out: w.tensor() }], {
    anyType: ["x"],
    writes: ["options.out"],
  }),
  "ProcessGroup.send": onGroup((w) => [w.tensor(), 1], {
    self: ofTwo,
    anyType: ["x"],
    numbers: { to: "index" },
  }),
  "ProcessGroup.recv": onGroup((w) => [w.tensor(), 1], {
    self: ofTwo,
    anyType: ["out"],
    numbers: { from: "index" },
    writes: ["out"],
  }),
  DataParallel: {
    calls: [
      (w) => [
        trained(w),
        alone(w),
        { reduction: "mean", bucketBytes: 1024, plan: { algorithm: "ring", order: [0] } },
      ],
    ],
    numbers: { "options.bucketBytes": "count" },
  },
  "DataParallel.noSync": {
    calls: [() => [() => 1]],
    self: (w) => new DataParallel(trained(w), alone(w)),
    outlives: true,
  },
  Pipeline: {
    calls: [
      (w) => {
        const [stage, group] = [trained(w), alone(w)];
        const dataParallel = new DataParallel(stage, group);
        const same = (x: Variable): Variable => x;
        const input = { shape: [ROWS, COLUMNS], dtype: "bf16" } as const;
        return [stage, group, { microbatches: 2, input, loss: same, forward: same, dataParallel }];
      },
      (w) => {
        const [stages, group] = [[trained(w), trained(w)], alone(w)];
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
      const stage = trained(w);
      for (const each of stage.parameters()) each.requiresGrad = false;
      return new Pipeline(stage, alone(w), { microbatches: 1, forward: (x) => x, loss: (y) => y });
    },
    outlives: true,
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
        alone(w),
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
    self: sharded,
    outlives: true,
  },
  "FullySharded.rowsOf": { calls: [(w) => [firstOf(w)]], self: sharded, outlives: true },
  "FullySharded.gather": {
    calls: [(w) => [firstOf(w), firstOf(w).tensor]],
    self: sharded,
    outlives: true,
    free: { localRows: "its shape is that of the parameter's rows" },
  },
  broadcastParameters: {
    calls: [(w) => [trained(w), alone(w), 0]],
    numbers: { root: "index" },
  },
  "ProcessGroup.split": onGroup(() => [{ tp: 1, cp: 1, dp: 1, pp: 1 }], {
    numbers: { "mesh.tp": "count", "mesh.cp": "count", "mesh.dp": "count", "mesh.pp": "count" },
  }),
  "ProcessGroup.reduceMax": onGroup((w) => [[w.tensor("f32")]]),
  "ProcessGroup.abort": onGroup(() => ["the loss is not a number"], { outlives: true }),
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
    costly: true,
  },
  loopbackGroup: {
    calls: [() => [2, { threads: 1, datapath: "hopper", timeoutMs: 1000 }]],
    numbers: { size: "count", "options.threads": "count", "options.timeoutMs": "count" },
    costly: true,
  },
};
