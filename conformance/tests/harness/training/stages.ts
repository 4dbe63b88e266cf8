/** The tasks of `run.ts` on ranks that divide the layers (pipeline parallelism) or the positions (context parallelism). */
import { createHash } from "node:crypto";
import { autocast } from "../../../../src/autocast/autocast.js";
import type { Backend } from "../../../../src/backends/backend.js";
import type { ProcessGroup } from "../../../../src/distributed/group.js";
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
import { DataParallel } from "../../../../src/parallel/data-parallel.js";
import { Pipeline, type PipelineStage } from "../../../../src/parallel/pipeline.js";
import { RandomState } from "../../../../src/quantizers/quantizer.js";
import { type VariableLike, variable } from "../../../../src/tape/differentiable.js";
import type { Variable } from "../../../../src/tape/variable.js";
import { Scope } from "../../../../src/tensor/scope.js";
import type { Shape } from "../../../../src/tensor/shape.js";
import type { Tensor } from "../../../../src/tensor/tensor.js";
import { PIXELS } from "./digits.js";
import { batch, CLASSES, BATCH as DIGIT_BATCH, HIDDEN } from "./mlp.js";
import { RECIPES_UNDER_TEST, type RecipeName } from "./run.js";
import { BATCH, Block, FEATURES, LENGTH, loadText, Model, passages, VOCABULARY } from "./transformer.js";

/** The recorded runs, each on two ranks. */
export const STAGED = ["mlp in a pipeline", "transformer in a pipeline", "transformer by positions"] as const;
export type Staged = (typeof STAGED)[number];

const MICROBATCHES = 4;
const SEED = 20n;

/** One rank of a run. */
interface RankRun {
  readonly model: Module;
  readonly optimizer: Optimizer;
  /** Computes the gradients of a step; returns losses for the caller to dispose of. */
  readonly gradients: (step: number) => readonly Tensor[];
  readonly end?: () => void;
}

/** The first stage: embeddings and the first block. */
class Front extends Module {
  readonly #tokens: Embedding;
  readonly #positions: Embedding;
  readonly #block: Block;

  constructor(backend: Backend, random: RandomState) {
    super(backend, { random });
    this.#tokens = this.addModule("tokens", new Embedding(backend, VOCABULARY, FEATURES, { random }));
    this.#positions = this.addModule("positions", new Embedding(backend, LENGTH, FEATURES, { random }));
    this.#block = this.addModule("block", new Block(backend, { random }));
  }

  forward(ids: VariableLike): Variable {
    const { backend } = this;
    const shape = variable(ids).shape;
    const places = tensor(
      backend,
      Int32Array.from({ length: LENGTH }, (_, i) => i),
      shape,
      "i32",
    );
    return this.#block.forward(add(this.#tokens.forward(ids), this.#positions.forward(places)));
  }
}

const text = loadText();

/** Returns one microbatch of the elements of a batch. */
function part<A extends Int32Array | Float32Array>(of: A, i: number): A {
  const each = of.length / MICROBATCHES;
  return of.slice(i * each, (i + 1) * each) as A;
}

const ids = (backend: Backend, of: Int32Array, shape: Shape): Tensor => tensor(backend, of, shape, "i32");

/** Returns the stages of a task, its inputs and its targets. */
function stagesOf(task: Staged, group: ProcessGroup) {
  const { backend, rank } = group;
  const random = new RandomState(SEED + BigInt(rank));
  const rows = DIGIT_BATCH / MICROBATCHES;
  if (task === "mlp in a pipeline") {
    const relu = (x: Variable): Variable => activation(x, "relu");
    const linear = (from: number, to: number): Linear => new Linear(backend, from, to, { random });
    const layers =
      rank === 0 ? [linear(PIXELS, HIDDEN[0]), relu, linear(...HIDDEN), relu] : [linear(HIDDEN[1], CLASSES)];
    const model = new Sequential(backend, ...layers);
    const images = (step: number, i: number): Tensor =>
      encode(tensor(backend, part(batch(step).images, i), [rows, PIXELS]), {
        format: "bf16",
        overflow: "nonfinite",
      });
    return {
      model,
      optimizer: new SGD(model, { learningRate: 0.1, momentum: 0.9, weightDecay: 1e-4 }),
      shape: [rows, HIDDEN[1]],
      input: images,
      target: (step: number, i: number) => ids(backend, part(batch(step).labels, i), [rows]),
    };
  }
  const model: PipelineStage =
    rank === 0
      ? new Front(backend, random)
      : new Sequential(
          backend,
          new Block(backend, { random }),
          new LayerNormLinear(backend, FEATURES, VOCABULARY, { random }),
        );
  const shape = [BATCH / MICROBATCHES, LENGTH];
  const passage = (step: number, i: number, shift: number): Tensor =>
    ids(backend, part(passages(text, step, shift), i), shape);
  return {
    model,
    optimizer: new AdamW(model, { learningRate: 3e-3, weightDecay: 0.01 }),
    shape: [...shape, FEATURES],
    input: (step: number, i: number) => passage(step, i, 0),
    target: (step: number, i: number) => passage(step, i, 1),
  };
}

function pipelined(task: Staged, group: ProcessGroup, recipe: RecipeName): RankRun {
  const { model, optimizer, shape, input, target } = stagesOf(task, group);
  const made = RECIPES_UNDER_TEST[recipe]?.();
  let step = 0;
  const pipeline = new Pipeline(model, group, {
    microbatches: MICROBATCHES,
    input: { shape },
    forward: (x) => autocast(made ? { recipe: made } : { enabled: false }, () => model.forward(x)),
    loss: (y, i) => crossEntropyLoss(y, target(step, i)),
  });
  return {
    model,
    optimizer,
    gradients: (at) => {
      step = at;
      return pipeline.step((i) => input(at, i));
    },
  };
}

function positioned(group: ProcessGroup, recipe: RecipeName): RankRun {
  const { backend, rank, size } = group;
  const model = new Model(backend, { random: new RandomState(SEED), positions: group });
  const optimizer = new AdamW(model, { learningRate: 3e-3, weightDecay: 0.01 });
  const parallel = new DataParallel(model, group);
  const made = RECIPES_UNDER_TEST[recipe]?.();
  const length = LENGTH / size;
  /** returns this rank's positions of every passage */
  const own = (of: Int32Array): Tensor =>
    ids(
      backend,
      of.filter((_, i) => Math.floor((i % LENGTH) / length) === rank),
      [BATCH, length],
    );
  return {
    model,
    optimizer,
    gradients: (step) => {
      using scope = new Scope();
      const places = own(Int32Array.from({ length: BATCH * LENGTH }, (_, i) => i % LENGTH));
      const region = made ? { recipe: made, amaxReductionGroup: group } : { enabled: false };
      const loss = autocast(region, () =>
        crossEntropyLoss(model.forward(own(passages(text, step, 0)), places), own(passages(text, step, 1))),
      );
      loss.backward();
      return [scope.keep(loss.tensor)];
    },
    end: () => parallel.dispose(),
  };
}

/** Runs the first steps on all ranks of a group. Returns one hash per step, of the losses and parameters of all ranks. */
export async function stagedSteps(
  groups: readonly ProcessGroup[],
  task: Staged,
  recipe: RecipeName,
  steps: number,
): Promise<readonly string[]> {
  const runs = groups.map((group) =>
    task === "transformer by positions" ? positioned(group, recipe) : pipelined(task, group, recipe),
  );
  const hash = createHash("sha256");
  const hashes: string[] = [];
  for (let step = 0; step < steps; step++) {
    const losses = runs.map(({ gradients, optimizer }) => {
      const seen = gradients(step);
      optimizer.step();
      optimizer.zeroGrad();
      return seen;
    });
    for (const [i, { model }] of runs.entries())
      for (const each of [...(losses[i] ?? []), ...model.parameters().map((parameter) => parameter.tensor)])
        hash.update(new Uint8Array((await each.data()).buffer as ArrayBuffer));
    for (const each of losses.flat()) each.dispose();
    hashes.push(hash.copy().digest("hex").slice(0, 16));
  }
  for (const { model, optimizer, end } of runs) {
    end?.();
    optimizer.dispose();
    model.dispose();
  }
  return hashes;
}
