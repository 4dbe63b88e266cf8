/** gpt-oss: windows in every other layer, sinks, and experts with the clamped swiglu, whose weights are stacked. */
import type { RotaryScaling } from "../../modules/rotary/inverse-frequencies.js";
import { DEFAULT_CLAMP } from "../../ops/elementwise/activation.js";
import type { CausalLMConfig } from "../config/config.js";
import { rotaryConfig } from "../config/rotary.js";
import type { WeightNames, WeightSource } from "../weights/sources.js";
import { attentionConfig, type Family, isSlidingLayer } from "./family.js";

const BASE = 150000;
/** The width of a head if the configuration has none. */
const HEAD_DIM = 64;
/** The scaling of frequencies if the configuration has no rule. */
const SCALING: RotaryScaling = {
  kind: "yarn",
  factor: 32,
  originalMaxPositionEmbeddings: 4096,
  betaFast: 32,
  betaSlow: 1,
  truncate: false,
};

export const GPT_OSS: Family = {
  modelType: "gpt_oss",
  model: (fields) => ({ rmsNormEps: fields.positiveNumber("rms_norm_eps", 1e-5) }),
  layer: (fields, index) => {
    const count = fields.integer("num_local_experts");
    const topk = fields.integer("num_experts_per_tok");
    if (topk > count) throw fields.refuse("num_experts_per_tok", `at most num_local_experts, ${count}`);
    const bias = fields.flag("attention_bias", true);
    const isSliding = isSlidingLayer(fields, index) ?? index % 2 === 0;
    return {
      attention: attentionConfig(fields, {
        inputBias: bias,
        outputBias: bias,
        sinks: true,
        defaultHeadDim: HEAD_DIM,
        window: isSliding ? fields.integer("sliding_window", 128) : undefined,
        rotary: rotaryConfig(fields, fields.integer("head_dim", HEAD_DIM), {
          defaultBase: BASE,
          defaultScaling: SCALING,
        }),
      }),
      feedForward: {
        kind: "experts",
        count,
        expert: {
          kind: "joined",
          intermediateSize: fields.integer("intermediate_size"),
          clamp: {
            limit: fields.positiveNumber("swiglu_limit", DEFAULT_CLAMP.limit),
            alpha: fields.positiveNumber("swiglu_alpha", DEFAULT_CLAMP.alpha),
            offset: DEFAULT_CLAMP.offset,
          },
        },
        router: {
          name: "router",
          topk,
          scoreFunction: "softmax",
          bias: true,
          correction: false,
        },
      },
    };
  },
  names: (hub, config) => ({ ...hub, sourcesOf: (parameter) => sourcesOf(config, hub, parameter) }),
};

const LAYER =
  /^model\.layers\.(\d+)\.(?:self_attn\.sinks|(mlp\.experts)\.(\d+)\.(gate_up_proj|down_proj)\.(weight|bias))$/;

/**
 * The experts of a layer share one tensor. Unquantized weights are [experts, in, out]. The rows of gate and up alternate, in the
 * same order as the rows of neighbouring pairs in one head; `pairedHeads: 1` separates them.
 */
function sourcesOf(config: CausalLMConfig, hub: WeightNames, parameter: string): readonly WeightSource[] {
  const match = LAYER.exec(parameter);
  if (!match) return hub.sourcesOf(parameter);
  const [, layer, experts, expert, projection, kind] = match;
  const { attention, feedForward } = config.layers[Number(layer)] as CausalLMConfig["layers"][number];
  if (!experts) return [{ tensor: parameter, shape: [attention.heads] }];
  if (feedForward.kind !== "experts") return hub.sourcesOf(parameter);
  const source = {
    tensor: `model.layers.${layer}.${experts}.${projection}${kind === "bias" ? "_bias" : ""}`,
    matrix: { index: Number(expert), count: feedForward.count },
    transposedWide: kind === "weight",
    pairedHeads: projection === "gate_up_proj" ? 1 : undefined,
  };
  return [source];
}
