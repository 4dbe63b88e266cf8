/** Small language models of transformer layers, like Llama and GPT, on one rank or divided by heads or positions. */
import { autocast } from "../../../../src/autocast.js";
import type { ProcessGroup } from "../../../../src/collectives/group.js";
import { add } from "../../../../src/functional/elementwise.js";
import { crossEntropyLoss } from "../../../../src/functional/loss.js";
import type { TransformerLayerOptions } from "../../../../src/modules/attention/transformer-options.js";
import { Embedding } from "../../../../src/modules/embedding.js";
import { LayerNormLinear } from "../../../../src/modules/layer-norm-linear.js";
import { Module } from "../../../../src/modules/module.js";
import { recompute } from "../../../../src/modules/recompute.js";
import { RotaryPositionEmbedding } from "../../../../src/modules/rotary-position-embedding.js";
import { TransformerLayer } from "../../../../src/modules/transformer-layer.js";
import { tensor } from "../../../../src/ops/create.js";
import { AdamW } from "../../../../src/optimizers/adamw.js";
import { DataParallel } from "../../../../src/parallel/data/data-parallel.js";
import { RandomState } from "../../../../src/quantizers/random-state.js";
import type { Variable } from "../../../../src/tape/variable.js";
import { Scope } from "../../../../src/tensor/scope.js";
import type { Tensor } from "../../../../src/tensor/tensor.js";
import type { RankSetup, RankTask } from "./rank-task.js";
import { loadText, passages, type TransformerSizes } from "./transformer.js";

const SIZES = {
  ...{ vocabulary: 128, features: 64, ffnHidden: 128, heads: 4 },
  ...{ length: 32, batch: 1, blocks: 2 },
} as const satisfies TransformerSizes;

/** The options that define a family of models. */
interface Family {
  readonly layer: TransformerLayerOptions;
  /** Whether positions are embedded with the tokens. Otherwise queries and keys are rotated. */
  readonly learnsPositions: boolean;
  /** The probability of dropout. Tensors that are added to residuals have no dropout where ranks have different rows. */
  readonly dropout: number;
  /** Whether the backward pass recomputes each layer. Otherwise it recomputes attention only. */
  readonly recomputes: boolean;
}

const LLAMA: Family = {
  layer: {
    ...{ numGqaGroups: 2, fuseQkvParams: true, bias: false },
    ...{ normalization: "RMSNorm", activation: "swiglu" },
  },
  learnsPositions: false,
  dropout: 0,
  recomputes: false,
};
const GPT: Family = { layer: { activation: "gelu" }, learnsPositions: true, dropout: 0.1, recomputes: true };

/** The ranks that divide the layers of a model (tp), and the ranks that divide its positions (cp). */
interface ModelRanks {
  readonly tp: ProcessGroup;
  readonly cp: ProcessGroup;
  readonly sequence: boolean;
}

class LanguageModel extends Module {
  readonly #tokens: Embedding;
  readonly #positions: Embedding | undefined;
  readonly #layers: readonly TransformerLayer[];
  readonly #head: LayerNormLinear;
  readonly #rotary: RotaryPositionEmbedding;

  constructor(
    readonly family: Family,
    { tp, cp, sequence }: ModelRanks,
    options: { readonly dtype: "bf16" | "f32"; readonly random: RandomState },
  ) {
    const { backend } = tp;
    super(backend, options);
    const { layer, learnsPositions, dropout } = family;
    const { vocabulary, features, ffnHidden, heads, length, blocks } = SIZES;
    const division = { group: tp, sequenceParallel: sequence };
    const layerOptions = { ...options, ...division };
    this.#tokens = this.addModule("tokens", new Embedding(backend, vocabulary, features, layerOptions));
    this.#positions = learnsPositions
      ? this.addModule("positions", new Embedding(backend, length, features, layerOptions))
      : undefined;
    this.#layers = Array.from({ length: blocks }, (_, i) =>
      this.addModule(
        `layer${i}`,
        new TransformerLayer(backend, features, ffnHidden, heads, {
          ...{ ...layer, ...layerOptions, layerNumber: i + 1, cpGroup: cp },
          attentionDropout: dropout,
          hiddenDropout: sequence || cp.size > 1 ? 0 : dropout,
        }),
      ),
    );
    const { normalization, bias } = layer;
    const head = { ...layerOptions, parallelMode: "column", normalization, bias } as const;
    this.#head = this.addModule("head", new LayerNormLinear(backend, features, vocabulary, head));
    this.#rotary = new RotaryPositionEmbedding(backend, features / heads);
  }

  /** The logits of ids [S, B] at the given positions. */
  forward(ids: Tensor, positions: Tensor): Variable {
    const tokens = this.#tokens.forward(ids);
    let x = this.#positions ? add(tokens, this.#positions.forward(positions)) : tokens;
    const { recomputes } = this.family;
    const call = this.#positions ? {} : { rotaryPosEmb: this.#rotary.forward(SIZES.length) };
    for (const layer of this.#layers) {
      const forward = (y: Variable): Variable =>
        layer.forward(y, { ...call, checkpointCoreAttention: !recomputes });
      x = recomputes ? recompute(forward, x) : forward(x);
    }
    return this.#head.forward(x);
  }
}

function createTask(family: Family, { mesh, sequence, dtype, recipe }: RankSetup): RankTask {
  const { tp, cp } = mesh;
  const { backend } = tp;
  const model = new LanguageModel(family, { tp, cp, sequence }, { dtype, random: new RandomState(23n) });
  const replicas = cp.size > 1 ? new DataParallel(model, cp) : undefined;
  const region = recipe ? { recipe, amaxReductionGroup: cp } : { enabled: false };
  const text = loadText();
  const { batch, length } = SIZES;
  const rows = length / cp.size;
  /** Moves [batch, length] to this rank's positions, [rows, batch]. */
  const ids = (values: Int32Array): Tensor =>
    tensor(
      backend,
      Int32Array.from({ length: rows * batch }, (_, i) => {
        const position = cp.rank * rows + Math.floor(i / batch);
        return values[(i % batch) * length + position] as number;
      }),
      [rows, batch],
      "i32",
    );
  const positions = Int32Array.from({ length: batch * length }, (_, i) => i % length);
  return {
    model,
    optimizer: new AdamW(model, { learningRate: 3e-3, weightDecay: 0.01 }),
    gradients(step) {
      using scope = new Scope();
      const readPassages = (shift: number): Tensor => ids(passages(SIZES, text, { step, shift }));
      const loss = autocast(region, () =>
        crossEntropyLoss(model.forward(readPassages(0), ids(positions)), readPassages(1), { group: tp }),
      );
      loss.backward();
      return [scope.keep(loss.tensor)];
    },
    end: () => replicas?.dispose(),
  };
}

/** Rotary embeddings, grouped heads, RMSNorm and swiglu; the backward pass recomputes attention. */
export const llama = (setup: RankSetup): RankTask => createTask(LLAMA, setup);

/** Position embeddings, LayerNorm, gelu, biases and dropout; the backward pass recomputes layers. */
export const gpt = (setup: RankSetup): RankTask => createTask(GPT, setup);
