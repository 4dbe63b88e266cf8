/** A byte-level language model of transformer blocks, on one rank or divided among several. */
import { readFileSync } from "node:fs";
import type { Backend } from "../../../../src/backends/backend.js";
import type { ProcessGroup } from "../../../../src/collectives/group.js";
import { dotProductAttention } from "../../../../src/functional/attention.js";
import { add } from "../../../../src/functional/elementwise.js";
import { crossEntropyLoss } from "../../../../src/functional/loss.js";
import { Embedding } from "../../../../src/modules/embedding.js";
import { LayerNormLinear } from "../../../../src/modules/layer-norm-linear.js";
import { LayerNormMLP } from "../../../../src/modules/layer-norm-mlp.js";
import { Linear } from "../../../../src/modules/linear.js";
import { Module } from "../../../../src/modules/module.js";
import { tensor } from "../../../../src/ops/create.js";
import { AdamW } from "../../../../src/optimizers/adamw.js";
import type { RandomState } from "../../../../src/quantizers/random-state.js";
import { randomWords } from "../../../../src/random.js";
import { type VariableLike, variable } from "../../../../src/tape/differentiable.js";
import type { Variable } from "../../../../src/tape/variable.js";
import type { WideDType } from "../../../../src/tensor/shape.js";
import type { Tensor } from "../../../../src/tensor/tensor.js";

/** The sizes of a model and its batches. */
export interface TransformerSizes {
  readonly vocabulary: number;
  readonly features: number;
  readonly ffnHidden: number;
  readonly heads: number;
  readonly length: number;
  readonly batch: number;
  readonly blocks: number;
}

/** The sizes of the recorded runs on one rank. */
export const SMALL: TransformerSizes = {
  vocabulary: 128,
  features: 64,
  ffnHidden: 128,
  heads: 2,
  length: 64,
  batch: 4,
  blocks: 2,
};

/** The ranks among which the layers are divided. */
export interface Division {
  readonly group: ProcessGroup;
  readonly sequenceParallel: boolean;
}

/** Options of a model. */
export interface ModelOptions {
  readonly random: RandomState;
  readonly dtype?: WideDType;
  /** The ranks among which the layers are divided. Absent if this rank has complete layers. */
  readonly division?: Division;
}

export class Block extends Module {
  readonly #qkv: LayerNormLinear;
  readonly #project: Linear;
  readonly #mlp: LayerNormMLP;
  readonly #heads: number;

  constructor(backend: Backend, sizes: TransformerSizes, { division, ...options }: ModelOptions) {
    super(backend, options);
    const { features, ffnHidden, heads } = sizes;
    const layerOptions = division ? { ...options, ...division, overlap: true } : options;
    const column = division ? ({ ...layerOptions, parallelMode: "column", pieces: 3 } as const) : options;
    const row = division ? ({ ...layerOptions, parallelMode: "row" } as const) : options;
    this.#qkv = this.addModule("qkv", new LayerNormLinear(backend, features, 3 * features, column));
    this.#project = this.addModule("project", new Linear(backend, features, features, row));
    const mlpOptions = {
      ...layerOptions,
      activation: "swiglu",
      normalization: "RMSNorm",
      bias: false,
    } as const;
    this.#mlp = this.addModule("mlp", new LayerNormMLP(backend, features, ffnHidden, mlpOptions));
    this.#heads = heads / (division?.group.size ?? 1);
  }

  forward(input: VariableLike): Variable {
    const x = variable(input);
    const attentionOutput = dotProductAttention(this.#qkv.forward(x), { heads: this.#heads });
    const attentionResidual = add(x, this.#project.forward(attentionOutput));
    return add(attentionResidual, this.#mlp.forward(attentionResidual));
  }
}

class Model extends Module {
  readonly #tokens: Embedding;
  readonly #positions: Embedding;
  readonly #blocks: readonly Block[];
  readonly #head: LayerNormLinear;

  constructor(backend: Backend, sizes: TransformerSizes, modelOptions: ModelOptions) {
    const { division, ...options } = modelOptions;
    super(backend, options);
    const { vocabulary, features, length, blocks } = sizes;
    const layerOptions = { ...options, ...division };
    const column = division ? ({ ...layerOptions, parallelMode: "column", overlap: true } as const) : options;
    this.#tokens = this.addModule("tokens", new Embedding(backend, vocabulary, features, layerOptions));
    this.#positions = this.addModule("positions", new Embedding(backend, length, features, layerOptions));
    this.#blocks = Array.from({ length: blocks }, (_, i) =>
      this.addModule(`block${i}`, new Block(backend, sizes, modelOptions)),
    );
    this.#head = this.addModule("head", new LayerNormLinear(backend, features, vocabulary, column));
  }

  forward(ids: Tensor, positions: Tensor): Variable {
    let x = add(this.#tokens.forward(ids), this.#positions.forward(positions));
    for (const block of this.#blocks) x = block.forward(x);
    return this.#head.forward(x);
  }
}

/** The training text: the licence, which every copy of the project contains and which does not change. */
export function loadText(): Uint8Array {
  return new Uint8Array(readFileSync(new URL("../../../../LICENSE", import.meta.url)));
}

/** Selects passages of the text. */
interface PassageSelection {
  readonly step: number;
  /** The first byte of each passage: 0 for the inputs, 1 for the targets. */
  readonly shift: number;
  /** The number of this replica; each replica reads other passages. Default 0. */
  readonly sample?: number;
}

/** The byte values of `batch` passages. */
export function passages(
  { batch, length, vocabulary }: TransformerSizes,
  text: Uint8Array,
  { step, shift, sample = 0 }: PassageSelection,
): Int32Array {
  const starts = Array.from(
    randomWords({ seed: 2n + 100n * BigInt(sample), offset: BigInt(step) }, batch),
    (word) => word % (text.length - length - 1),
  );
  return Int32Array.from({ length: batch * length }, (_, i) => {
    const start = starts[Math.floor(i / length)] as number;
    return (text[start + (i % length) + shift] as number) % vocabulary;
  });
}

/** The position of each byte in its passage. */
export function bytePositions({ batch, length }: TransformerSizes): Int32Array {
  return Int32Array.from({ length: batch * length }, (_, i) => i % length);
}

/** Trains to predict each byte of a passage from the bytes before it. */
export function createTransformer(backend: Backend, sizes: TransformerSizes, options: ModelOptions) {
  const text = loadText();
  const model = new Model(backend, sizes, options);
  const ids = (values: Int32Array): Tensor => tensor(backend, values, [sizes.batch, sizes.length], "i32");
  return {
    model,
    optimize: (module: Module) => new AdamW(module, { learningRate: 3e-3, weightDecay: 0.01 }),
    loss(step: number, sample = 0): Variable {
      const readPassages = (shift: number): Tensor => ids(passages(sizes, text, { step, shift, sample }));
      return crossEntropyLoss(model.forward(readPassages(0), ids(bytePositions(sizes))), readPassages(1), {
        group: options.division?.group,
      });
    },
  };
}

/** The model of the recorded runs on one rank; its gradients are clipped. */
export function transformer(backend: Backend, random: RandomState) {
  const { model, optimize, loss } = createTransformer(backend, SMALL, { random });
  return { model, optimizer: optimize(model), loss, maxNorm: 1 };
}
