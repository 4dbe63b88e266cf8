/** Drawn models with several stages, which are trained by a pipeline of ranks and by one process. */
import { createHash } from "node:crypto";
import * as fc from "fast-check";
import { autocast } from "../../../../src/autocast.js";
import type { Backend } from "../../../../src/backends/backend.js";
import type { ProcessGroup } from "../../../../src/collectives/group.js";
import { activation } from "../../../../src/functional/elementwise.js";
import { mseLoss } from "../../../../src/functional/loss.js";
import { LayerNormLinear } from "../../../../src/modules/layer-norm-linear.js";
import { LayerNormMLP } from "../../../../src/modules/layer-norm-mlp.js";
import { Linear } from "../../../../src/modules/linear.js";
import type { Module } from "../../../../src/modules/module.js";
import { wideTensor } from "../../../../src/modules/parameter.js";
import { Sequential } from "../../../../src/modules/sequential.js";
import { AdamW } from "../../../../src/optimizers/adamw.js";
import type { Optimizer } from "../../../../src/optimizers/optimizer.js";
import { SGD } from "../../../../src/optimizers/sgd.js";
import { DataParallel } from "../../../../src/parallel/data/data-parallel.js";
import { Pipeline } from "../../../../src/parallel/pipeline/pipeline.js";
import { RandomState } from "../../../../src/quantizers/random-state.js";
import { normal } from "../../../../src/random.js";
import { membersOf } from "../../../../src/tape/value.js";
import { Variable } from "../../../../src/tape/variable.js";
import { Scope } from "../../../../src/tensor/scope.js";
import type { Tensor } from "../../../../src/tensor/tensor.js";
import { RECIPES_UNDER_TEST, type RecipeName } from "../../harness/training/run.js";

export const ROWS = 32;
export const WIDTH = 32;
const STEPS = 2;

const LAYERS = ["linear", "norm", "mlp", "relu"] as const;

/** A model of one or more stages, and how it is trained. */
export interface PipelineCase {
  readonly recipe: RecipeName;
  /** The number of ranks. Stage i is on rank i modulo this number. */
  readonly ranks: number;
  /** The layers of each stage. A stage may consist of an activation only. */
  readonly stages: readonly (readonly (typeof LAYERS)[number][])[];
  readonly microbatches: number;
  readonly dtype: "bf16" | "f32";
  /** Whether the weights of each stage are trained. */
  readonly trained: readonly boolean[];
  /** Whether the quantized weights of the first microbatch are reused for all others. */
  readonly caches: boolean;
  readonly adamw: boolean;
  /** Whether the inputs of microbatches require gradients. */
  readonly trainsInputs: boolean;
}

const layers = fc.array(fc.constantFrom(...LAYERS), { minLength: 1, maxLength: 2 });

export function pipelineCases(recipe: RecipeName, maxRanks: number): fc.Arbitrary<PipelineCase> {
  const sizes = fc
    .record({ ranks: fc.integer({ min: 1, max: maxRanks }), chunks: fc.integer({ min: 1, max: 3 }) })
    .filter(({ ranks, chunks }) => ranks * chunks <= maxRanks);
  return sizes.chain(({ ranks, chunks }) => {
    const count = ranks * chunks;
    return fc.record({
      recipe: fc.constant(recipe),
      ranks: fc.constant(ranks),
      stages: fc.array(layers, { minLength: count, maxLength: count }),
      // ranks with several stages run whole groups of as many microbatches as there are ranks
      microbatches:
        chunks === 1
          ? fc.integer({ min: 1, max: 6 })
          : fc.integer({ min: 1, max: Math.ceil(6 / ranks) }).map((groups) => groups * ranks),
      // the Hadamard transform of NVFP4 takes bf16 only
      dtype: recipe === "nvfp4" ? fc.constant("bf16" as const) : fc.constantFrom("bf16", "f32"),
      trained: fc.array(fc.boolean(), { minLength: count, maxLength: count }),
      caches: fc.boolean(),
      adamw: fc.boolean(),
      trainsInputs: fc.boolean(),
    });
  });
}

/** One stage with its optimizer. */
class Stage {
  readonly model: Sequential;
  readonly optimizer: Optimizer | undefined;
  readonly #recipe;

  constructor(
    backend: Backend,
    readonly plan: PipelineCase,
    readonly number: number,
  ) {
    const { dtype, stages, trained, adamw, recipe } = plan;
    const options = { dtype, random: new RandomState(BigInt(100 + number)) };
    const relu = (x: Variable): Variable => activation(x, "relu");
    const layers = (stages[number] ?? []).map((kind) => {
      if (kind === "relu") return relu;
      if (kind === "linear") return new Linear(backend, WIDTH, WIDTH, options);
      if (kind === "norm") return new LayerNormLinear(backend, WIDTH, WIDTH, options);
      return new LayerNormMLP(backend, WIDTH, 2 * WIDTH, options);
    });
    this.model = new Sequential(backend, ...layers);
    for (const parameter of this.model.parameters()) parameter.requiresGrad = trained[number] === true;
    this.#recipe = RECIPES_UNDER_TEST[recipe]?.();
    if (this.model.parameters().length > 0)
      this.optimizer = adamw
        ? new AdamW(this.model, { learningRate: 0.01 })
        : new SGD(this.model, { learningRate: 0.1, momentum: 0.9 });
  }

  forward(x: Variable, microbatch: number): Variable {
    const call = this.plan.caches ? { isFirstMicrobatch: microbatch === 0 } : {};
    const recipe = this.#recipe;
    return autocast(recipe ? { recipe } : { enabled: false }, () => this.model.forward(x, call));
  }

  update(): void {
    this.optimizer?.step();
    this.optimizer?.zeroGrad();
  }

  /** Returns hashes of all state that affects later steps. */
  async state(): Promise<string> {
    const texts: string[] = [];
    for (const [name, { value }] of this.model.namedParameters())
      for (const member of membersOf(value)) texts.push(`${name} ${await hashOf(member)}`);
    for (const [name, { master, buffers }] of this.optimizer?.slots ?? [])
      for (const tensor of [master, ...buffers.values()])
        texts.push(`optimizer ${name} ${await hashOf(tensor)}`);
    for (const [name, quantization] of this.model.namedQuantizations()) {
      const { forward, backward } = quantization.snapshotSync() ?? {};
      texts.push(`${name} ${JSON.stringify([forward, this.#isReached ? backward : "unused"])}`);
    }
    return texts.join("\n");
  }

  /**
   * Whether a backward pass computes anything that training uses. A pipeline also computes gradients for frozen stages that a
   * single process skips.
   */
  get #isReached(): boolean {
    const { stages, trained } = this.plan;
    return stages
      .slice(0, this.number + 1)
      .some((kinds, i) => trained[i] && kinds.some((kind) => kind !== "relu"));
  }

  dispose(): void {
    this.optimizer?.dispose();
    this.model.dispose();
  }
}

async function hashOf(x: Tensor): Promise<string> {
  const { buffer, byteOffset, byteLength } = await x.data();
  return createHash("sha256")
    .update(new Uint8Array(buffer as ArrayBuffer, byteOffset, byteLength))
    .digest("hex");
}

function randomTensor(backend: Backend, { dtype }: PipelineCase, seed: bigint, number: number) {
  const values = normal({ seed, offset: BigInt(number * ROWS * WIDTH) }, ROWS * WIDTH, 1);
  return wideTensor(backend, values, [ROWS, WIDTH], dtype);
}

/** A replica of the model, which trains on its own samples. */
export interface Replica {
  readonly rank: number;
  readonly size: number;
  /** The ranks that have the same stage in other replicas. */
  readonly group?: ProcessGroup;
}

const ONLY: Replica = { rank: 0, size: 1 };

/** The result of a training run: the losses, the gradients of all inputs, and the state of each stage. */
export interface Trained {
  readonly losses: readonly string[];
  /** Empty for a rank that does not have the first stage. */
  readonly inputGrads: readonly string[];
  readonly states: readonly string[];
}

const dataParallelStages = (model: Module, group: ProcessGroup | undefined): DataParallel | undefined =>
  group && new DataParallel(model, group, { reduction: "sum" });

/** Trains in one process: for each microbatch, all stages forward and then backward. */
export function trainAlone(backend: Backend, plan: PipelineCase, replica = ONLY): () => Promise<Trained> {
  const stages = plan.stages.map((_, number) => new Stage(backend, plan, number));
  const parallel = stages.flatMap(({ model }) => dataParallelStages(model, replica.group) ?? []);
  const losses: Tensor[] = [];
  const inputs: Variable[] = [];
  for (let step = 0; step < STEPS; step++) {
    for (let i = 0; i < plan.microbatches; i++) {
      const sample = sampleOf(plan, replica, step, i);
      let x = new Variable(randomTensor(backend, plan, 1n, sample), plan.trainsInputs);
      inputs.push(x);
      using scope = new Scope();
      for (const stage of stages) x = stage.forward(x, i);
      const loss = mseLoss(x, randomTensor(backend, plan, 2n, sample));
      const backward = (): void => void (loss.requiresGrad && loss.backward());
      const silent = i < plan.microbatches - 1 ? parallel : [];
      silent.reduce((inner, module) => () => module.noSync(inner), backward)();
      losses.push(scope.keep(loss.tensor));
    }
    for (const stage of stages) stage.update();
  }
  return async () => {
    const [texts, inputGrads] = [await textsOf(losses), await gradsOf(inputs)];
    const states = [];
    for (const stage of stages) states.push(await stage.state());
    for (const disposable of [...parallel, ...stages]) disposable.dispose();
    return { losses: texts, inputGrads, states };
  };
}

const sampleOf = ({ microbatches }: PipelineCase, { rank, size }: Replica, step: number, i: number): number =>
  (step * size + rank) * microbatches + i;

async function textsOf(losses: readonly Tensor[]): Promise<readonly string[]> {
  const texts: string[] = [];
  for (const loss of losses) {
    texts.push(String(await loss.data()));
    loss.dispose();
  }
  return texts;
}

/** The gradients of inputs, "none" for an input without one. Frees the inputs. */
async function gradsOf(inputs: readonly Variable[]): Promise<readonly string[]> {
  const texts: string[] = [];
  for (const { grad } of inputs) texts.push(grad ? await hashOf(grad as Tensor) : "none");
  for (const input of inputs) {
    input.zeroGrad();
    input.tensor.dispose();
  }
  return texts;
}

/** Runs one rank of the pipeline. Returns its losses, gradients of inputs and states of stages when all work has completed. */
export function trainRank(group: ProcessGroup, plan: PipelineCase, replica = ONLY) {
  const { backend, rank } = group;
  const numbers = [...plan.stages.keys()].filter((number) => number % plan.ranks === rank);
  const stages = numbers.map((number) => new Stage(backend, plan, number));
  const dataParallel = stages.flatMap(({ model }) => dataParallelStages(model, replica.group) ?? []);
  const losses: Tensor[] = [];
  const inputs: Variable[] = [];
  let step = 0;
  const sample = (seed: bigint, i: number) =>
    randomTensor(backend, plan, seed, sampleOf(plan, replica, step, i));
  const models = stages.map(({ model }) => model);
  const pipeline = new Pipeline(models.length === 1 ? (models[0] as Sequential) : models, group, {
    microbatches: plan.microbatches,
    input: { shape: [ROWS, WIDTH], dtype: plan.dtype },
    forward: (x, i, chunk) => (stages[chunk] as Stage).forward(x, i),
    loss: (y, i) => mseLoss(y, sample(2n, i)),
    ...(dataParallel.length > 0 ? { dataParallel } : {}),
  });
  for (; step < STEPS; step++) {
    const stepInputs = Array.from({ length: numbers.includes(0) ? plan.microbatches : 0 }, (_, i) => {
      return new Variable(sample(1n, i), plan.trainsInputs);
    });
    inputs.push(...stepInputs);
    losses.push(...pipeline.step((i) => stepInputs[i] as Variable));
    for (const stage of stages) stage.update();
  }
  return async () => {
    const [texts, inputGrads] = [await textsOf(losses), await gradsOf(inputs)];
    const states: string[] = [];
    for (const stage of stages) states.push(await stage.state());
    for (const disposable of [...dataParallel, ...stages]) disposable.dispose();
    return { losses: texts, inputGrads, states };
  };
}
