/** Networks whose layers are divided among ranks. Replicas of the network on other ranks have different samples. */
import { autocast } from "../../../../src/autocast.js";
import { mseLoss } from "../../../../src/functional/loss.js";
import { LayerNormMLP } from "../../../../src/modules/layer-norm-mlp.js";
import { Linear } from "../../../../src/modules/linear.js";
import type { Module } from "../../../../src/modules/module.js";
import { wideTensor } from "../../../../src/modules/parameter.js";
import { Sequential } from "../../../../src/modules/sequential.js";
import type { Optimizer } from "../../../../src/optimizers/optimizer.js";
import { SGD } from "../../../../src/optimizers/sgd.js";
import { DataParallel } from "../../../../src/parallel/data/data-parallel.js";
import { fullyShard } from "../../../../src/parallel/fsdp/fully-shard.js";
import { RandomState } from "../../../../src/quantizers/random-state.js";
import { normal } from "../../../../src/random.js";
import type { Variable } from "../../../../src/tape/variable.js";
import { Scope } from "../../../../src/tensor/scope.js";
import type { RankSetup, RankTask } from "./rank-task.js";
import { createTransformer, type Division, type TransformerSizes } from "./transformer.js";

interface Network {
  readonly model: Module;
  readonly optimize: (model: Module) => Optimizer;
  loss(step: number, sample: number): Variable;
}

interface NetworkOptions {
  readonly dtype: "bf16" | "f32";
  readonly random: RandomState;
}

function createRankTask(
  make: (division: Division, options: NetworkOptions) => Network,
  { mesh, sequence, dtype, recipe, samples }: RankSetup,
  shards = false,
): RankTask {
  const division = { group: mesh.tp, sequenceParallel: sequence };
  const { model, optimize, loss } = make(division, { dtype, random: new RandomState(21n) });
  const sumOptions = { reduction: "sum" } as const;
  const sharded = shards ? fullyShard(model, mesh.dp, sumOptions) : undefined;
  const replicas = mesh.dp.size > 1 && !shards ? new DataParallel(model, mesh.dp, sumOptions) : undefined;
  // updates the rows that this rank stores
  const optimizer = optimize(model);
  // all replicas of a network use the same scales
  const region = recipe ? { recipe, amaxReductionGroup: mesh.dp } : { enabled: false };
  return {
    model,
    optimizer,
    gradients(step) {
      using scope = new Scope();
      return samples.map((sample) => {
        const result = autocast(region, () => loss(step, sample));
        result.backward();
        return scope.keep(result.tensor);
      });
    },
    fullParameters:
      sharded && (() => model.parameters().map((parameter) => sharded.gather(parameter, parameter.tensor))),
    end: () => replicas?.dispose(),
  };
}

const ROWS = 64;
const FEATURES = 64;
const HIDDEN = 256;
const RATE = 0.05;

/**
 * A network of a column-parallel layer, a row-parallel one, and a layer that contains both, with a norm before and a gated
 * activation in between. On four ranks some parts are not whole blocks: they either form separate blocks or are gathered before
 * they are quantized.
 */
function mlp(division: Division, options: NetworkOptions): Network {
  const { group, sequenceParallel: sequence } = division;
  const { backend, rank, size } = group;
  const layerOptions = { ...division, ...options, overlap: true };
  const model = new Sequential(
    backend,
    new Linear(backend, FEATURES, HIDDEN, { ...layerOptions, parallelMode: "column" }),
    new Linear(backend, HIDDEN, FEATURES, { ...layerOptions, parallelMode: "row" }),
    new LayerNormMLP(backend, FEATURES, HIDDEN, { ...layerOptions, activation: "swiglu" }),
  );
  const rows = sequence ? ROWS / size : ROWS;
  const drawInput = (seed: number, step: number, sample: number) => {
    const values = normal({ seed: BigInt(seed + 100 * sample), offset: BigInt(step) }, ROWS * FEATURES, 1);
    const begin = sequence ? rank * rows * FEATURES : 0;
    const part = values.subarray(begin, begin + rows * FEATURES).slice();
    return wideTensor(backend, part, [rows, FEATURES], options.dtype);
  };
  return {
    model,
    optimize: (module) => new SGD(module, { learningRate: RATE, momentum: 0.9 }),
    loss: (step, sample) => mseLoss(model.forward(drawInput(1, step, sample)), drawInput(2, step, sample)),
  };
}

const SIZES: TransformerSizes = {
  vocabulary: 128,
  features: 128,
  ffnHidden: 128,
  heads: 4,
  length: 16,
  batch: 4,
  blocks: 1,
};

const transformer = (division: Division, options: NetworkOptions): Network =>
  createTransformer(division.group.backend, SIZES, { ...options, division });

export const dividedMlp = (setup: RankSetup): RankTask => createRankTask(mlp, setup);

/** A transformer whose attention is divided by heads, and whose embeddings and loss are divided by the vocabulary. */
export const dividedTransformer = (setup: RankSetup): RankTask => createRankTask(transformer, setup);

/** The same networks, fully sharded: each rank along dp stores some rows of every parameter. */
export const shardedMlp = (setup: RankSetup): RankTask => createRankTask(mlp, setup, true);
export const shardedTransformer = (setup: RankSetup): RankTask => createRankTask(transformer, setup, true);
