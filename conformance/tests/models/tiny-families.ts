/** Tiny models of Gemma 3, gpt-oss and DeepSeek-V3 with random weights, as hubs have them. */
import * as fc from "fast-check";
import { uniform } from "../harness/plain-attention.js";
import { type TinyModel, type TinyTensor, VOCABULARY } from "./tiny-model.js";

export type FamilyName = "gemma3_text" | "gpt_oss" | "deepseek_v3";

/** The drawn choices of a model. Each family uses some of them. */
export interface FamilyChoices {
  readonly family: FamilyName;
  readonly layers: number;
  readonly heads: readonly [queries: number, keys: number];
  readonly isScaled: boolean;
  /** Gemma 3: whether layers have windows. DeepSeek-V3: whether queries are computed from a narrow vector. */
  readonly isUsual: boolean;
  readonly softcap: boolean;
  readonly groups: boolean;
  readonly isTied: boolean;
  /** DeepSeek-V3: mscale and mscale_all_dim, absent if it is 0. */
  readonly mscale: number;
  readonly seed: number;
}

const [HIDDEN, INTERMEDIATE, HEAD_DIM, EXPERTS] = [32, 32, 8, 8];
const [RANK, ROTATED_WIDTH, PLAIN, VALUE_DIM] = [16, 4, 6, 10];

/** Draws the choices of a model of one family. */
export const familyChoices = (family: FamilyName): fc.Arbitrary<FamilyChoices> =>
  fc.record({
    family: fc.constant(family),
    // the sixth layer of Gemma 3 has no window
    layers: family === "gemma3_text" ? fc.constantFrom(1, 6, 7) : fc.integer({ min: 1, max: 3 }),
    heads: fc.constantFrom([4, 2] as const, [4, 4] as const, [4, 1] as const),
    isScaled: fc.boolean(),
    isUsual: fc.boolean(),
    softcap: fc.boolean(),
    groups: fc.boolean(),
    isTied: fc.boolean(),
    mscale: fc.constantFrom(0, 1, 0.71),
    seed: fc.integer({ min: 0, max: 2 ** 20 }),
  });

type Linear = (name: string, rows: number, columns: number, hasBias?: boolean) => void;
/** Adds tensors of drawn values, around `center`. */
interface Adder {
  readonly add: (name: string, shape: readonly number[], center?: number) => void;
  readonly linear: Linear;
}

/** The model of these choices. */
export function tinyFamily(choices: FamilyChoices): TinyModel {
  const draw = uniform(choices.seed);
  const tensors = new Map<string, TinyTensor>();
  const add: Adder["add"] = (name, shape, center = 0) => {
    const size = shape.reduce((product, extent) => product * extent, 1);
    const values = Float32Array.from({ length: size }, () => center + Math.round(draw() * 24) / 128);
    tensors.set(name, { shape, values });
  };
  const linear: Linear = (name, rows, columns, hasBias = false) => {
    add(`${name}.weight`, [rows, columns]);
    if (hasBias) add(`${name}.bias`, [rows]);
  };
  const { family, layers, isTied: requestsTying } = choices;
  const isTied = family === "gemma3_text" || (family === "deepseek_v3" && requestsTying);
  add("model.embed_tokens.weight", [VOCABULARY, HIDDEN]);
  for (let index = 0; index < layers; index++) LAYERS[family](choices, index, { add, linear });
  add("model.norm.weight", [HIDDEN], family === "gemma3_text" ? 0 : 1);
  if (!isTied) linear("lm_head", VOCABULARY, HIDDEN);
  const config = {
    ...{ model_type: family, vocab_size: VOCABULARY, hidden_size: HIDDEN, num_hidden_layers: layers },
    ...{ max_position_embeddings: 64, rms_norm_eps: 1e-5, tie_word_embeddings: isTied, eos_token_id: 2 },
    ...{ num_attention_heads: 4, rope_theta: 1000, torch_dtype: "bfloat16", ...CONFIGS[family](choices) },
  };
  return { config, tensors };
}

/** Adds the projections of queries, keys and values of heads of one width. */
function attention(
  prefix: string,
  { heads: [queries, keys] }: FamilyChoices,
  { linear }: Adder,
  bias: boolean,
) {
  linear(`${prefix}.self_attn.q_proj`, queries * HEAD_DIM, HIDDEN, bias);
  linear(`${prefix}.self_attn.k_proj`, keys * HEAD_DIM, HIDDEN, bias);
  linear(`${prefix}.self_attn.v_proj`, keys * HEAD_DIM, HIDDEN, bias);
  linear(`${prefix}.self_attn.o_proj`, HIDDEN, queries * HEAD_DIM, bias);
}

function dense(prefix: string, { linear }: Adder, size = INTERMEDIATE): void {
  linear(`${prefix}.gate_proj`, size, HIDDEN);
  linear(`${prefix}.up_proj`, size, HIDDEN);
  linear(`${prefix}.down_proj`, HIDDEN, size);
}

const LAYERS: Readonly<Record<FamilyName, (choices: FamilyChoices, index: number, adder: Adder) => void>> = {
  gemma3_text: (choices, index, adder) => {
    const prefix = `model.layers.${index}`;
    const norms = ["input", "post_attention", "pre_feedforward", "post_feedforward"];
    for (const norm of norms) adder.add(`${prefix}.${norm}_layernorm.weight`, [HIDDEN]);
    for (const operand of ["q", "k"]) adder.add(`${prefix}.self_attn.${operand}_norm.weight`, [HEAD_DIM]);
    attention(prefix, choices, adder, false);
    dense(`${prefix}.mlp`, adder);
  },
  gpt_oss: (choices, index, adder) => {
    const prefix = `model.layers.${index}`;
    for (const norm of ["input", "post_attention"])
      adder.add(`${prefix}.${norm}_layernorm.weight`, [HIDDEN], 1);
    attention(prefix, choices, adder, true);
    adder.add(`${prefix}.self_attn.sinks`, [choices.heads[0]]);
    adder.linear(`${prefix}.mlp.router`, EXPERTS, HIDDEN, true);
    adder.add(`${prefix}.mlp.experts.gate_up_proj`, [EXPERTS, HIDDEN, 2 * INTERMEDIATE]);
    adder.add(`${prefix}.mlp.experts.gate_up_proj_bias`, [EXPERTS, 2 * INTERMEDIATE]);
    adder.add(`${prefix}.mlp.experts.down_proj`, [EXPERTS, INTERMEDIATE, HIDDEN]);
    adder.add(`${prefix}.mlp.experts.down_proj_bias`, [EXPERTS, HIDDEN]);
  },
  deepseek_v3: ({ isUsual }, index, adder) => {
    const prefix = `model.layers.${index}`;
    for (const norm of ["input", "post_attention"])
      adder.add(`${prefix}.${norm}_layernorm.weight`, [HIDDEN], 1);
    const queries = 4 * (PLAIN + ROTATED_WIDTH);
    if (isUsual) {
      adder.linear(`${prefix}.self_attn.q_a_proj`, RANK, HIDDEN);
      adder.add(`${prefix}.self_attn.q_a_layernorm.weight`, [RANK], 1);
      adder.linear(`${prefix}.self_attn.q_b_proj`, queries, RANK);
    } else adder.linear(`${prefix}.self_attn.q_proj`, queries, HIDDEN);
    adder.linear(`${prefix}.self_attn.kv_a_proj_with_mqa`, RANK + ROTATED_WIDTH, HIDDEN);
    adder.add(`${prefix}.self_attn.kv_a_layernorm.weight`, [RANK], 1);
    adder.linear(`${prefix}.self_attn.kv_b_proj`, 4 * (PLAIN + VALUE_DIM), RANK);
    adder.linear(`${prefix}.self_attn.o_proj`, HIDDEN, 4 * VALUE_DIM);
    if (index === 0) return dense(`${prefix}.mlp`, adder);
    adder.linear(`${prefix}.mlp.gate`, EXPERTS, HIDDEN);
    adder.add(`${prefix}.mlp.gate.e_score_correction_bias`, [EXPERTS]);
    for (let expert = 0; expert < EXPERTS; expert++)
      dense(`${prefix}.mlp.experts.${expert}`, adder, INTERMEDIATE / 2);
    dense(`${prefix}.mlp.shared_experts`, adder, INTERMEDIATE / 2);
  },
};

const YARN = { factor: 4, original_max_position_embeddings: 64, beta_fast: 8, beta_slow: 0.5 };

const CONFIGS: Readonly<Record<FamilyName, (choices: FamilyChoices) => object>> = {
  gemma3_text: ({ heads, isUsual, softcap, isScaled }) => ({
    ...{ intermediate_size: INTERMEDIATE, num_key_value_heads: heads[1], head_dim: HEAD_DIM },
    ...{ query_pre_attn_scalar: HEAD_DIM, rope_local_base_freq: 10000 },
    ...(isUsual ? { sliding_window: 3, sliding_window_pattern: 6 } : { sliding_window_pattern: 1 }),
    ...(softcap ? { final_logit_softcapping: 2.3 } : {}),
    ...(isScaled ? { rope_scaling: { rope_type: "linear", factor: 8 } } : {}),
  }),
  gpt_oss: ({ heads, isScaled }) => ({
    ...{ intermediate_size: INTERMEDIATE, num_key_value_heads: heads[1], head_dim: HEAD_DIM },
    ...{ num_local_experts: EXPERTS, num_experts_per_tok: 2, sliding_window: 3, attention_bias: true },
    // without a rule, transformers scales the frequencies of gpt-oss
    rope_scaling: isScaled ? { rope_type: "yarn", truncate: false, ...YARN } : null,
  }),
  deepseek_v3: ({ isUsual, isScaled, groups, mscale }) => ({
    ...{ intermediate_size: INTERMEDIATE, moe_intermediate_size: INTERMEDIATE / 2, num_key_value_heads: 4 },
    ...{ n_routed_experts: EXPERTS, n_shared_experts: 1, num_experts_per_tok: 4, first_k_dense_replace: 1 },
    ...{
      kv_lora_rank: RANK,
      qk_rope_head_dim: ROTATED_WIDTH,
      qk_nope_head_dim: PLAIN,
      v_head_dim: VALUE_DIM,
    },
    ...{ routed_scaling_factor: 2.3, norm_topk_prob: true, scoring_func: "sigmoid", topk_method: "noaux_tc" },
    ...(isUsual ? { q_lora_rank: RANK } : {}),
    ...(groups ? { n_group: 4, topk_group: 2 } : { n_group: 1, topk_group: 1 }),
    ...(isScaled
      ? { rope_scaling: { type: "yarn", ...YARN, ...(mscale ? { mscale, mscale_all_dim: mscale } : {}) } }
      : {}),
  }),
};
