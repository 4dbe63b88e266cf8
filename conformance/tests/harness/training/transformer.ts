/** A byte-level language model with two transformer blocks. */
import { readFileSync } from "node:fs";
import type { Backend } from "../../../../src/backends/backend.js";
import type { ProcessGroup } from "../../../../src/distributed/group.js";
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
import type { RandomState } from "../../../../src/quantizers/quantizer.js";
import { randomWords } from "../../../../src/random.js";
import { type VariableLike, variable } from "../../../../src/tape/differentiable.js";
import type { Variable } from "../../../../src/tape/variable.js";
import type { Tensor } from "../../../../src/tensor/tensor.js";

export const VOCABULARY = 128;
export const FEATURES = 64;
const HEADS = 2;
export const LENGTH = 64;
export const BATCH = 4;
const BLOCKS = 2;

interface Made {
  readonly random: RandomState;
  /** The ranks among which the positions are divided. Absent if this rank has all positions. */
  readonly positions?: ProcessGroup;
}

export class Block extends Module {
  readonly #group: ProcessGroup | undefined;
  readonly #qkv: LayerNormLinear;
  readonly #project: Linear;
  readonly #mlp: LayerNormMLP;

  constructor(backend: Backend, { positions, ...options }: Made) {
    super(backend, options);
    this.#group = positions;
    this.#qkv = this.addModule("qkv", new LayerNormLinear(backend, FEATURES, 3 * FEATURES, options));
    this.#project = this.addModule("project", new Linear(backend, FEATURES, FEATURES, options));
    const form = { ...options, activation: "swiglu", normalization: "RMSNorm", bias: false } as const;
    this.#mlp = this.addModule("mlp", new LayerNormMLP(backend, FEATURES, 2 * FEATURES, form));
  }

  forward(input: VariableLike): Variable {
    const x = variable(input);
    const attended = dotProductAttention(this.#qkv.forward(x), { heads: HEADS, group: this.#group });
    const between = add(x, this.#project.forward(attended));
    return add(between, this.#mlp.forward(between));
  }
}

export class Model extends Module {
  readonly #tokens: Embedding;
  readonly #positions: Embedding;
  readonly #blocks: readonly Block[];
  readonly #head: LayerNormLinear;

  constructor(backend: Backend, made: Made) {
    const { positions: _, ...options } = made;
    super(backend, options);
    this.#tokens = this.addModule("tokens", new Embedding(backend, VOCABULARY, FEATURES, options));
    this.#positions = this.addModule("positions", new Embedding(backend, LENGTH, FEATURES, options));
    this.#blocks = Array.from({ length: BLOCKS }, (_, i) =>
      this.addModule(`block${i}`, new Block(backend, made)),
    );
    this.#head = this.addModule("head", new LayerNormLinear(backend, FEATURES, VOCABULARY, options));
  }

  forward(ids: Tensor, positions: Tensor): Variable {
    let x = add(this.#tokens.forward(ids), this.#positions.forward(positions));
    for (const block of this.#blocks) x = block.forward(x);
    return this.#head.forward(x);
  }
}

/** The text to learn: the licence, which every copy of the project contains and which does not change. */
export function loadText(): Uint8Array {
  return new Uint8Array(readFileSync(new URL("../../../../LICENSE", import.meta.url)));
}

/** The byte values of `BATCH` passages for step `step`, starting at byte `shift` of each. */
export function passages(text: Uint8Array, step: number, shift: number): Int32Array {
  const starts = Array.from(
    randomWords({ seed: 2n, offset: BigInt(step) }, BATCH),
    (word) => word % (text.length - LENGTH - 1),
  );
  return Int32Array.from({ length: BATCH * LENGTH }, (_, i) => {
    const start = starts[Math.floor(i / LENGTH)] as number;
    return (text[start + (i % LENGTH) + shift] as number) % VOCABULARY;
  });
}

/** Trains to predict each byte of a passage from the bytes before it. */
export function transformer(backend: Backend, random: RandomState) {
  const text = loadText();
  const model = new Model(backend, { random });
  const optimizer = new AdamW(model, { learningRate: 3e-3, weightDecay: 0.01 });
  return {
    model,
    optimizer,
    maxNorm: 1,
    loss(step: number): Variable {
      const places = Int32Array.from({ length: BATCH * LENGTH }, (_, i) => i % LENGTH);
      const ids = (of: Int32Array): Tensor => tensor(backend, of, [BATCH, LENGTH], "i32");
      return crossEntropyLoss(
        model.forward(ids(passages(text, step, 0)), ids(places)),
        ids(passages(text, step, 1)),
      );
    },
  };
}
