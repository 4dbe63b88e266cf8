/** The tasks of `run.ts` on ranks that divide the layers (pipeline parallelism) or the positions (context parallelism). */
import { autocast } from "../../../../src/autocast.js";
import type { Backend } from "../../../../src/backends/backend.js";
import { activation, add } from "../../../../src/functional/elementwise.js";
import { crossEntropyLoss } from "../../../../src/functional/loss.js";
import { Embedding } from "../../../../src/modules/embedding.js";
import { LayerNormLinear } from "../../../../src/modules/layer-norm-linear.js";
import { Linear } from "../../../../src/modules/linear.js";
import { Module } from "../../../../src/modules/module.js";
import { Sequential } from "../../../../src/modules/sequential.js";
import { encode } from "../../../../src/ops/cast/cast.js";
import { tensor } from "../../../../src/ops/create.js";
import { AdamW } from "../../../../src/optimizers/adamw.js";
import type { Optimizer } from "../../../../src/optimizers/optimizer.js";
import { SGD } from "../../../../src/optimizers/sgd.js";
import type { PipelineStage } from "../../../../src/parallel/pipeline/options.js";
import { Pipeline } from "../../../../src/parallel/pipeline/pipeline.js";
import { RandomState } from "../../../../src/quantizers/random-state.js";
import { type VariableLike, variable } from "../../../../src/tape/differentiable.js";
import type { Variable } from "../../../../src/tape/variable.js";
import type { Shape } from "../../../../src/tensor/shape.js";
import type { Tensor } from "../../../../src/tensor/tensor.js";
import { PIXELS } from "./digits.js";
import { batch, CLASSES, BATCH as DIGIT_BATCH, HIDDEN } from "./mlp.js";
import type { RankSetup, RankTask } from "./rank-task.js";
import { Block, bytePositions, loadText, type ModelOptions, passages, SMALL } from "./transformer.js";

const MICROBATCHES = 4;
const SEED = 20n;
const { vocabulary, features, length } = SMALL;

const ids = (backend: Backend, values: Int32Array, shape: Shape): Tensor =>
  tensor(backend, values, shape, "i32");

/** The first stage: embeddings and the first block. */
class Front extends Module {
  readonly #tokens: Embedding;
  readonly #positions: Embedding;
  readonly #block: Block;

  constructor(backend: Backend, options: ModelOptions) {
    super(backend, options);
    this.#tokens = this.addModule("tokens", new Embedding(backend, vocabulary, features, options));
    this.#positions = this.addModule("positions", new Embedding(backend, length, features, options));
    this.#block = this.addModule("block", new Block(backend, SMALL, options));
  }

  forward(input: VariableLike): Variable {
    const { shape } = variable(input);
    const positions = ids(this.backend, bytePositions({ ...SMALL, batch: shape[0] as number }), shape);
    return this.#block.forward(add(this.#tokens.forward(input), this.#positions.forward(positions)));
  }
}

const text = loadText();

/** Returns one microbatch of the elements of a batch. */
function microbatch<A extends Int32Array | Float32Array>(elements: A, i: number): A {
  const size = elements.length / MICROBATCHES;
  return elements.slice(i * size, (i + 1) * size) as A;
}

/** One of two stages, its inputs and its targets. */
interface Stage {
  readonly model: PipelineStage;
  readonly optimizer: Optimizer;
  /** The shape of the second stage's input. */
  readonly shape: Shape;
  readonly input: (step: number, microbatch: number) => Tensor;
  readonly target: (step: number, microbatch: number) => Tensor;
}

function createRankTask(
  make: (backend: Backend, stage: number, options: ModelOptions) => Stage,
  { mesh: { pp: group }, dtype, recipe }: RankSetup,
): RankTask {
  const { backend, rank } = group;
  const options = { dtype, random: new RandomState(SEED + BigInt(rank)) };
  const { model, optimizer, shape, input, target } = make(backend, rank, options);
  let step = 0;
  const pipeline = new Pipeline(model, group, {
    microbatches: MICROBATCHES,
    input: { shape },
    forward: (x) => autocast(recipe ? { recipe } : { enabled: false }, () => model.forward(x)),
    loss: (y, i) => crossEntropyLoss(y, target(step, i)),
  });
  return {
    model,
    optimizer,
    gradients: (stepIndex) => {
      step = stepIndex;
      return pipeline.step((i) => input(stepIndex, i));
    },
  };
}

function mlpStage(backend: Backend, stage: number, options: ModelOptions): Stage {
  const rows = DIGIT_BATCH / MICROBATCHES;
  const relu = (x: Variable): Variable => activation(x, "relu");
  const linear = (inFeatures: number, outFeatures: number): Linear =>
    new Linear(backend, inFeatures, outFeatures, options);
  const layers =
    stage === 0 ? [linear(PIXELS, HIDDEN[0]), relu, linear(...HIDDEN), relu] : [linear(HIDDEN[1], CLASSES)];
  const model = new Sequential(backend, ...layers);
  return {
    model,
    optimizer: new SGD(model, { learningRate: 0.1, momentum: 0.9, weightDecay: 1e-4 }),
    shape: [rows, HIDDEN[1]],
    input: (step, i) =>
      encode(tensor(backend, microbatch(batch(step).images, i), [rows, PIXELS]), {
        format: "bf16",
        overflow: "nonfinite",
      }),
    target: (step, i) => ids(backend, microbatch(batch(step).labels, i), [rows]),
  };
}

function transformerStage(backend: Backend, stage: number, options: ModelOptions): Stage {
  const model: PipelineStage =
    stage === 0
      ? new Front(backend, options)
      : new Sequential(
          backend,
          new Block(backend, SMALL, options),
          new LayerNormLinear(backend, features, vocabulary, options),
        );
  const shape = [SMALL.batch / MICROBATCHES, length];
  const drawPassage = (step: number, i: number, shift: number): Tensor =>
    ids(backend, microbatch(passages(SMALL, text, { step, shift }), i), shape);
  return {
    model,
    optimizer: new AdamW(model, { learningRate: 3e-3, weightDecay: 0.01 }),
    shape: [...shape, features],
    input: (step, i) => drawPassage(step, i, 0),
    target: (step, i) => drawPassage(step, i, 1),
  };
}

export const pipelinedMlp = (setup: RankSetup): RankTask => createRankTask(mlpStage, setup);
export const pipelinedTransformer = (setup: RankSetup): RankTask => createRankTask(transformerStage, setup);
