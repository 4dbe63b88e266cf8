/**
 * Writes GGUF files of Gemma 3, gpt-oss and DeepSeek-V3 by the rules of llama.cpp's converter (convert_hf_to_gguf.py, and the
 * tables of the package gguf), independently of the code under test.
 */
import { writeFile } from "node:fs/promises";
import { ggufBytes, type Piece, u8, u32 } from "../checkpoints/gguf/files.js";
import type { FamilyName } from "./tiny-families.js";
import { type FileType, GgufTensors, type TinyModel, type TinyTensor } from "./tiny-model.js";

const ARCHITECTURES: Readonly<Record<FamilyName, string>> = {
  gemma3_text: "gemma3",
  gpt_oss: "gpt-oss",
  deepseek_v3: "deepseek2",
};

type Named = readonly [name: string, tensor: TinyTensor];
type Config = TinyModel["config"];
/** An entry of the metadata: its key without the architecture, and its value. Undefined values are left out. */
export type Entry = readonly [
  key: string,
  value: number | string | boolean | undefined,
  type?: "float" | undefined,
];

/** Changes of the metadata: keys with other values. */
export type Changes = Readonly<Record<string, Entry[1]>>;

/** The contents of a file in addition to the model. All fields are optional. */
export interface FileChoices {
  readonly changes?: Changes;
  /** The form of DeepSeek-V3 before the up-projection of keys and values was split. */
  readonly isOld?: boolean;
  /** Further entries of the metadata. */
  readonly extra?: readonly (readonly Piece[])[];
}

/** Writes the file of a model. */
export async function writeFamily(
  path: string,
  { config, tensors }: TinyModel,
  type: FileType,
  { changes = {}, isOld = false, extra = [] }: FileChoices = {},
): Promise<void> {
  const family = config.model_type as FamilyName;
  const architecture = ARCHITECTURES[family];
  const convertedTensors = stackExperts(
    [...tensors].flatMap((tensor) => CONVERTED[family](tensor, config, isOld)),
  );
  const file = new GgufTensors(type);
  const ggufTensors = convertedTensors.map(([name, tensor]) => file.add(name, tensor));
  const entries = [...sharedEntries(config), ...FAMILY_ENTRIES[family](config, isOld)].map(
    ([key, value, kind]): Entry => [key, Object.hasOwn(changes, key) ? changes[key] : value, kind],
  );
  const metadata = [
    ["general.architecture", u32(8), architecture],
    ...entries.flatMap(([key, value, kind]) =>
      value === undefined ? [] : [[`${architecture}.${key}`, ...typedEntry(value, kind)]],
    ),
    ...extra,
  ];
  await writeFile(path, ggufBytes({ metadata, tensors: ggufTensors, data: file.data }));
}

function typedEntry(value: number | string | boolean, kind: Entry[2]): readonly Piece[] {
  if (typeof value === "string") return [u32(8), value];
  if (typeof value === "boolean") return [u32(7), u8(Number(value))];
  return kind === "float" ? [u32(6), new Uint8Array(Float32Array.of(value).buffer)] : [u32(4), u32(value)];
}

const number = (value: unknown): number | undefined => (typeof value === "number" ? value : undefined);

function sharedEntries(config: Config): readonly Entry[] {
  const rule = (config.rope_scaling ?? {}) as Readonly<Record<string, unknown>>;
  const type = rule.rope_type ?? rule.type;
  return [
    ["block_count", number(config.num_hidden_layers)],
    ["context_length", number(config.max_position_embeddings)],
    ["embedding_length", number(config.hidden_size)],
    ["feed_forward_length", number(config.intermediate_size)],
    ["attention.head_count", number(config.num_attention_heads)],
    ["rope.freq_base", number(config.rope_theta), "float"],
    ["attention.layer_norm_rms_epsilon", number(config.rms_norm_eps), "float"],
    ["rope.scaling.type", typeof type === "string" ? type : undefined],
    ["rope.scaling.factor", number(rule.factor), "float"],
    ["rope.scaling.original_context_length", number(rule.original_max_position_embeddings)],
    ["rope.scaling.yarn_beta_fast", number(rule.beta_fast), "float"],
    ["rope.scaling.yarn_beta_slow", number(rule.beta_slow), "float"],
  ];
}

function byHeads(config: Config): readonly Entry[] {
  return [
    ["attention.head_count_kv", number(config.num_key_value_heads)],
    ["attention.key_length", number(config.head_dim)],
    ["attention.value_length", number(config.head_dim)],
    ["attention.sliding_window", number(config.sliding_window)],
  ];
}

const FAMILY_ENTRIES: Readonly<Record<FamilyName, (config: Config, isOld: boolean) => readonly Entry[]>> = {
  gemma3_text: (config) => [
    ...byHeads(config),
    ["final_logit_softcapping", number(config.final_logit_softcapping), "float"],
  ],
  gpt_oss: (config) => [
    ...byHeads(config),
    ["expert_feed_forward_length", number(config.intermediate_size)],
    ["expert_count", number(config.num_local_experts)],
    ["expert_used_count", number(config.num_experts_per_tok)],
  ],
  deepseek_v3: (config, isOld) => {
    const [rank, rotated] = [Number(config.kv_lora_rank), Number(config.qk_rope_head_dim)];
    const [key, value] = [Number(config.qk_nope_head_dim) + rotated, Number(config.v_head_dim)];
    const mscale = number((config.rope_scaling as Readonly<Record<string, unknown>>)?.mscale_all_dim);
    return [
      ["attention.head_count_kv", isOld ? Number(config.num_attention_heads) : 1],
      ["attention.key_length", isOld ? key : rank + rotated],
      ["attention.value_length", isOld ? value : rank],
      ["attention.key_length_mla", isOld ? undefined : key],
      ["attention.value_length_mla", isOld ? undefined : value],
      ["attention.q_lora_rank", number(config.q_lora_rank)],
      ["attention.kv_lora_rank", rank],
      ["rope.dimension_count", rotated],
      ["leading_dense_block_count", number(config.first_k_dense_replace)],
      ["expert_feed_forward_length", number(config.moe_intermediate_size)],
      ["expert_count", number(config.n_routed_experts)],
      ["expert_used_count", number(config.num_experts_per_tok)],
      ["expert_shared_count", number(config.n_shared_experts)],
      ["expert_group_count", number(config.n_group)],
      ["expert_group_used_count", number(config.topk_group)],
      ["expert_weights_scale", number(config.routed_scaling_factor), "float"],
      ["expert_weights_norm", true],
      ["expert_gating_func", 2],
      ["rope.scaling.yarn_log_multiplier", mscale === undefined ? undefined : 0.1 * mscale, "float"],
    ];
  },
};

const SHARED_WORDS: readonly (readonly [RegExp, string])[] = [
  [/^model\.embed_tokens/, "token_embd"],
  [/^model\.norm/, "output_norm"],
  [/^lm_head/, "output"],
  [/^model\.layers\.(\d+)/, "blk.$1"],
  [/input_layernorm/, "attn_norm"],
  [/self_attn\.([qkv])_proj/, "attn_$1"],
  [/self_attn\.o_proj/, "attn_output"],
  [/mlp\.(gate|up|down)_proj/, "ffn_$1"],
];

const ggufNameOf = (name: string, replacements: readonly (readonly [RegExp, string])[]): string =>
  [...replacements, ...SHARED_WORDS].reduce((text, [from, to]) => text.replace(from, to), name);

/** Every `step`-th element of the last dimension from `begin` on, with the last two dimensions swapped. */
function columns({ shape, values }: TinyTensor, begin: number, step: number): TinyTensor {
  const [experts, rows, totalRows] = shape as readonly [number, number, number];
  const count = totalRows / step;
  const out = Float32Array.from({ length: experts * count * rows }, (_, i) => {
    const [expert, column, row] = [Math.floor(i / (count * rows)), Math.floor(i / rows) % count, i % rows];
    return values[(expert * rows + row) * totalRows + column * step + begin] as number;
  });
  return { shape: [experts, count, rows], values: out };
}

const everySecond = ({ shape, values }: TinyTensor, begin: number): TinyTensor => ({
  shape: [shape[0] as number, (shape[1] as number) / 2],
  values: values.filter((_, i) => i % 2 === begin),
});

/** The tensors of a GGUF file for one tensor of the folder. */
const CONVERTED: Readonly<
  Record<FamilyName, (named: Named, config: Config, isOld: boolean) => readonly Named[]>
> = {
  gemma3_text: ([name, { shape, values }]) => {
    const replacements = [
      [/post_attention_layernorm/, "post_attention_norm"],
      [/pre_feedforward_layernorm/, "ffn_norm"],
      [/post_feedforward_layernorm/, "post_ffw_norm"],
      [/self_attn\.([qk])_norm/, "attn_$1_norm"],
    ] as const;
    const shift = name.endsWith("norm.weight") ? 1 : 0;
    return [[ggufNameOf(name, replacements), { shape, values: values.map((value) => value + shift) }]];
  },
  gpt_oss: ([name, tensor]) => {
    const block = ggufNameOf(/^model\.layers\.\d+/.exec(name)?.[0] ?? "", []);
    if (name.endsWith("gate_up_proj"))
      return [
        [`${block}.ffn_gate_exps.weight`, columns(tensor, 0, 2)],
        [`${block}.ffn_up_exps.weight`, columns(tensor, 1, 2)],
      ];
    if (name.endsWith("gate_up_proj_bias"))
      return [
        [`${block}.ffn_gate_exps.bias`, everySecond(tensor, 0)],
        [`${block}.ffn_up_exps.bias`, everySecond(tensor, 1)],
      ];
    if (name.endsWith("experts.down_proj")) return [[`${block}.ffn_down_exps.weight`, columns(tensor, 0, 1)]];
    const replacements = [
      [/mlp\.experts\.down_proj_bias/, "ffn_down_exps.bias"],
      [/mlp\.router/, "ffn_gate_inp"],
      [/self_attn\.sinks/, "attn_sinks.weight"],
      [/post_attention_layernorm/, "post_attention_norm"],
    ] as const;
    return [[ggufNameOf(name, replacements), tensor]];
  },
  deepseek_v3: ([name, tensor], config, isOld) => {
    if (name.endsWith("kv_b_proj.weight") && !isOld) return splitHeads(name, tensor, config);
    const replacements = [
      [/self_attn\.(q_a|q_b|kv_b)_proj/, "attn_$1"],
      [/self_attn\.kv_a_proj_with_mqa/, "attn_kv_a_mqa"],
      [/self_attn\.(q_a|kv_a)_layernorm/, "attn_$1_norm"],
      [/post_attention_layernorm/, "ffn_norm"],
      [/mlp\.gate\.e_score_correction_bias/, "exp_probs_b.bias"],
      [/mlp\.gate\.weight/, "ffn_gate_inp.weight"],
      [/mlp\.experts\.\d+\.(gate|up|down)_proj/, "ffn_$1_exps"],
      [/mlp\.shared_experts\.(gate|up|down)_proj/, "ffn_$1_shexp"],
    ] as const;
    return [[ggufNameOf(name, replacements), tensor]];
  },
};

/** The up-projection of keys and values as two tensors, the keys with rank and width swapped. */
function splitHeads(name: string, { shape, values }: TinyTensor, config: Config): readonly Named[] {
  const [heads, key] = [Number(config.num_attention_heads), Number(config.qk_nope_head_dim)];
  const value = Number(config.v_head_dim);
  const rank = shape[1] as number;
  const offsetOf = (head: number, row: number, column: number): number =>
    values[(head * (key + value) + row) * rank + column] as number;
  const indicesUpTo = (length: number): readonly number[] => Array.from({ length }, (_, index) => index);
  const keys = indicesUpTo(heads).flatMap((head) =>
    indicesUpTo(rank).flatMap((column) => indicesUpTo(key).map((row) => offsetOf(head, row, column))),
  );
  const rest = indicesUpTo(heads).flatMap((head) =>
    indicesUpTo(value).flatMap((row) => indicesUpTo(rank).map((column) => offsetOf(head, key + row, column))),
  );
  const block = ggufNameOf(name.replace(/\.self_attn.*/, ""), []);
  return [
    [`${block}.attn_k_b.weight`, { shape: [heads, rank, key], values: Float32Array.from(keys) }],
    [`${block}.attn_v_b.weight`, { shape: [heads, value, rank], values: Float32Array.from(rest) }],
  ];
}

/** Tensors of one name become one tensor with a leading dimension. */
function stackExperts(experts: readonly Named[]): readonly Named[] {
  const groups = new Map<string, TinyTensor[]>();
  for (const [name, tensor] of experts) groups.set(name, [...(groups.get(name) ?? []), tensor]);
  return [...groups].map(([name, group]) => {
    const [firstExpert] = group as [TinyTensor];
    const isExpert = /_exps\.weight$/.test(name) && firstExpert.shape.length === 2;
    if (!isExpert) return [name, firstExpert];
    const values = Float32Array.from(group.flatMap((expert) => [...expert.values]));
    return [name, { shape: [group.length, ...firstExpert.shape], values }];
  });
}
