/** Tiny language models with random weights, in the file formats of other libraries. */
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import * as fc from "fast-check";
import { writeSafetensors } from "../../../src/io/safetensors-writer.js";
import { ggufBytes, type Piece, TYPE, u32 } from "../checkpoints/gguf/files.js";
import { uniform } from "../harness/plain-attention.js";

/** A tensor of values that f16 and bf16 represent. */
export interface TinyTensor {
  readonly shape: readonly number[];
  readonly values: Float32Array;
}

/** A model: the object in config.json, and its tensors by their names. */
export interface TinyModel {
  readonly config: Readonly<Record<string, unknown>>;
  readonly tensors: ReadonlyMap<string, TinyTensor>;
}

/** The drawn choices of a model. */
export interface TinyChoices {
  readonly family: "llama" | "mistral" | "qwen2" | "qwen3" | "qwen3_moe";
  readonly heads: readonly [queries: number, keys: number];
  readonly headDim: number;
  readonly layers: number;
  readonly isTied: boolean;
  readonly bias: boolean;
  readonly window: number | undefined;
  readonly rope: "plain" | "linear" | "llama3" | "yarn" | "parameters";
  readonly seed: number;
}

export const VOCABULARY = 40;
const [HIDDEN, INTERMEDIATE, POSITIONS, EXPERTS] = [32, 64, 64, 4];

const ROPE: Readonly<Record<TinyChoices["rope"], object>> = {
  plain: { rope_theta: 1000 },
  linear: { rope_theta: 1000, rope_scaling: { type: "linear", factor: 2 } },
  llama3: {
    rope_theta: 500,
    rope_scaling: {
      ...{ rope_type: "llama3", factor: 8, low_freq_factor: 1, high_freq_factor: 4 },
      original_max_position_embeddings: 16,
    },
  },
  yarn: {
    rope_theta: 1000,
    rope_scaling: { rope_type: "yarn", factor: 4, original_max_position_embeddings: 16 },
  },
  parameters: { rope_parameters: { rope_type: "default", rope_theta: 300 } },
};

/** The choices of a small Llama. */
export const TINY: TinyChoices = {
  ...{ family: "llama", heads: [4, 2], headDim: 8, layers: 2, isTied: false, bias: false },
  ...{ window: undefined, rope: "plain", seed: 7 },
};

/** Draws the choices of a model. */
export const tinyChoices: fc.Arbitrary<TinyChoices> = fc.record({
  family: fc.constantFrom("llama", "mistral", "qwen2", "qwen3", "qwen3_moe"),
  heads: fc.constantFrom([4, 2] as const, [4, 4] as const, [4, 1] as const),
  headDim: fc.constantFrom(8, 16),
  layers: fc.integer({ min: 1, max: 2 }),
  isTied: fc.boolean(),
  bias: fc.boolean(),
  window: fc.constantFrom(undefined, 3, 7),
  rope: fc.constantFrom("plain", "linear", "llama3", "yarn", "parameters"),
  seed: fc.integer({ min: 0, max: 2 ** 20 }),
});

/** The model of these choices. Its linear weights are large enough that attention depends on positions. */
export function tinyModel(choices: TinyChoices): TinyModel {
  const { family, heads, headDim, layers, isTied, bias, window, rope, seed } = choices;
  const [queries, keys] = heads;
  const draw = uniform(seed);
  const tensors = new Map<string, TinyTensor>();
  const add = (name: string, shape: readonly number[], center = 0): void => {
    const size = shape.reduce((product, extent) => product * extent, 1);
    const scale = center === 0 ? 1 / 256 : 1 / 64;
    const values = Float32Array.from({ length: size }, () => center + Math.round(draw() * 24) * scale);
    tensors.set(name, { shape, values });
  };
  const linear = (name: string, rows: number, columns: number, hasBias: boolean): void => {
    add(`${name}.weight`, [rows, columns]);
    if (hasBias) add(`${name}.bias`, [rows]);
  };
  const takesBias = bias && (family === "llama" || family.startsWith("qwen3"));
  const inputBias = takesBias || family === "qwen2";
  add("model.embed_tokens.weight", [VOCABULARY, HIDDEN]);
  for (let i = 0; i < layers; i++) {
    const prefix = `model.layers.${i}`;
    add(`${prefix}.input_layernorm.weight`, [HIDDEN], 1);
    linear(`${prefix}.self_attn.q_proj`, queries * headDim, HIDDEN, inputBias);
    linear(`${prefix}.self_attn.k_proj`, keys * headDim, HIDDEN, inputBias);
    linear(`${prefix}.self_attn.v_proj`, keys * headDim, HIDDEN, inputBias);
    linear(`${prefix}.self_attn.o_proj`, HIDDEN, queries * headDim, takesBias);
    if (family.startsWith("qwen3"))
      for (const norm of ["q_norm", "k_norm"]) add(`${prefix}.self_attn.${norm}.weight`, [headDim], 1);
    add(`${prefix}.post_attention_layernorm.weight`, [HIDDEN], 1);
    // the first layer of two has no experts
    const hasExperts = family === "qwen3_moe" && i === layers - 1;
    if (hasExperts) linear(`${prefix}.mlp.gate`, EXPERTS, HIDDEN, false);
    for (const mlp of hasExperts
      ? [0, 1, 2, 3].map((expert) => `${prefix}.mlp.experts.${expert}`)
      : [`${prefix}.mlp`]) {
      const size = hasExperts ? INTERMEDIATE / 2 : INTERMEDIATE;
      linear(`${mlp}.gate_proj`, size, HIDDEN, takesBias && family === "llama");
      linear(`${mlp}.up_proj`, size, HIDDEN, takesBias && family === "llama");
      linear(`${mlp}.down_proj`, HIDDEN, size, takesBias && family === "llama");
    }
  }
  add("model.norm.weight", [HIDDEN], 1);
  if (!isTied) add("lm_head.weight", [VOCABULARY, HIDDEN]);
  const config = {
    ...{ model_type: family, vocab_size: VOCABULARY, hidden_size: HIDDEN, num_hidden_layers: layers },
    ...{ intermediate_size: INTERMEDIATE, num_attention_heads: queries, num_key_value_heads: keys },
    ...{ head_dim: headDim, max_position_embeddings: POSITIONS, rms_norm_eps: 1e-5, hidden_act: "silu" },
    ...{ tie_word_embeddings: isTied, eos_token_id: 2, torch_dtype: "bfloat16" },
    ...(takesBias ? { attention_bias: true } : {}),
    ...(takesBias && family === "llama" ? { mlp_bias: true } : {}),
    ...(window !== undefined && family === "mistral" ? { sliding_window: window } : {}),
    ...(window !== undefined && family.startsWith("qwen")
      ? { use_sliding_window: true, sliding_window: window, max_window_layers: 1 }
      : {}),
    ...(family === "qwen3_moe"
      ? {
          ...{ num_experts: EXPERTS, num_experts_per_tok: 2, moe_intermediate_size: INTERMEDIATE / 2 },
          ...{ norm_topk_prob: !isTied, mlp_only_layers: layers === 2 ? [0] : [], decoder_sparse_step: 1 },
        }
      : {}),
    ...ROPE[rope],
  };
  return { config, tensors };
}

const TYPES = { F32: TYPE.f32, F16: TYPE.f16, BF16: TYPE.bf16 } as const;
/** A type in which files store values. */
export type FileType = keyof typeof TYPES;

const WORD = new DataView(new ArrayBuffer(4));

/** Encodes values as a type that represents them exactly. */
function encodeAs(type: FileType, values: Float32Array): Uint8Array {
  if (type === "F32") return new Uint8Array(values.buffer.slice(0));
  const codes = Uint16Array.from(values, (value) => {
    WORD.setFloat32(0, value);
    const bits = WORD.getUint32(0);
    if (type === "BF16") return bits >>> 16;
    const exponent = ((bits >>> 23) & 255) - 112;
    // the values of tiny models are 0 or normal numbers of f16
    return exponent <= 0 ? 0 : ((bits >>> 16) & 0x8000) | (exponent << 10) | ((bits >>> 13) & 0x3ff);
  });
  return new Uint8Array(codes.buffer);
}

/** The tensors of a GGUF file. Matrices have one type, and vectors are F32. */
export class GgufTensors {
  readonly #pieces: Uint8Array[] = [];
  #offset = 0;

  constructor(readonly type: FileType) {}

  /** The bytes of all tensors, each padded to 32 bytes. */
  get data(): Uint8Array {
    return Buffer.concat(this.#pieces);
  }

  /** Adds a tensor, and returns its entry in the file's header. */
  add(name: string, { shape, values }: TinyTensor) {
    const stored = shape.length === 1 ? "F32" : this.type;
    const bytes = encodeAs(stored, values);
    const paddedBytes = new Uint8Array(Math.ceil(bytes.length / 32) * 32);
    paddedBytes.set(bytes);
    this.#pieces.push(paddedBytes);
    const offset = this.#offset;
    this.#offset += paddedBytes.length;
    return { name, dimensions: shape.toReversed(), type: TYPES[stored], offset };
  }
}

/** Writes a folder as hubs have it: config.json and safetensors files, among which the tensors are dealt. */
export async function writeHub(
  folder: string,
  { config, tensors }: TinyModel,
  { type = "BF16", shards = 1 }: { readonly type?: FileType; readonly shards?: number } = {},
): Promise<void> {
  await mkdir(folder, { recursive: true });
  await writeFile(join(folder, "config.json"), JSON.stringify(config));
  const names = [...tensors.keys()];
  const fileOf = (index: number): string =>
    shards === 1 ? "model.safetensors" : `model-0000${(index % shards) + 1}-of-0000${shards}.safetensors`;
  for (let shard = 0; shard < shards; shard++) {
    const some = names.filter((_, i) => i % shards === shard);
    const plan = some.map((name) => ({ name, dtype: type, shape: tensors.get(name)?.shape ?? [] }));
    await writeSafetensors(join(folder, fileOf(shard)), { tensors: plan }, async (writeTensor) => {
      for (const name of some)
        await writeTensor(name, encodeAs(type, tensors.get(name)?.values ?? new Float32Array()));
    });
  }
  if (shards === 1) return;
  const map = Object.fromEntries(names.map((name, i) => [name, fileOf(i)]));
  await writeFile(join(folder, "model.safetensors.index.json"), JSON.stringify({ weight_map: map }));
}

/** The names that llama.cpp gives to the parts of a name. */
const GGUF_WORDS: readonly (readonly [RegExp, string])[] = [
  [/^model\.embed_tokens/, "token_embd"],
  [/^model\.norm/, "output_norm"],
  [/^lm_head/, "output"],
  [/^model\.layers\.(\d+)/, "blk.$1"],
  [/input_layernorm/, "attn_norm"],
  [/post_attention_layernorm/, "ffn_norm"],
  [/self_attn\.([qkv])_proj/, "attn_$1"],
  [/self_attn\.o_proj/, "attn_output"],
  [/self_attn\.([qk])_norm/, "attn_$1_norm"],
  [/mlp\.(gate|up|down)_proj/, "ffn_$1"],
  [/mlp\.gate/, "ffn_gate_inp"],
  [/mlp\.experts\.(gate|up|down)_proj/, "ffn_$1_exps"],
];

/** Writes a GGUF file as llama.cpp's converter does. It has no windows, and llama3's rule is a tensor there. */
export async function writeGguf(
  path: string,
  { config, tensors }: TinyModel,
  type: FileType,
  extra: readonly (readonly Piece[])[] = [],
): Promise<void> {
  const family = String(config.model_type);
  const architecture = family === "mistral" ? "llama" : family.replace("_", "");
  const heads: Readonly<Record<string, number>> = {
    q_proj: Number(config.num_attention_heads),
    k_proj: Number(config.num_key_value_heads),
  };
  const file = new GgufTensors(type);
  const ggufTensors = [...ropeFactors(config), ...stackExperts(tensors)].map(([name, { shape, values }]) => {
    const [, projection = ""] = /self_attn\.([qk]_proj)/.exec(name) ?? [];
    const isPaired = architecture === "llama" && projection !== "";
    const orderedValues = isPaired ? alternateHalves(values, heads[projection] as number, shape) : values;
    const ggufName = GGUF_WORDS.reduce((text, [from, to]) => text.replace(from, to), name);
    return file.add(ggufName, { shape, values: orderedValues });
  });
  const textEntry = (key: string, value: string): Piece[] => [key, u32(8), value];
  const integerEntry = (key: string, field: string): Piece[] => [
    `${architecture}.${key}`,
    u32(4),
    u32(Number(config[field])),
  ];
  const floatEntry = (key: string, value: number): Piece[] => [
    `${architecture}.${key}`,
    u32(6),
    new Uint8Array(Float32Array.of(value).buffer),
  ];
  const rule = config.rope_scaling as Readonly<Record<string, unknown>> | undefined;
  // the rule llama3 is a tensor
  const scaling = rule?.rope_type === "llama3" ? undefined : rule;
  const scalingType = scaling && String(scaling.rope_type ?? scaling.type);
  const theta = config.rope_theta ?? (config.rope_parameters as { rope_theta: number }).rope_theta;
  const metadata = [
    textEntry("general.architecture", architecture),
    integerEntry("block_count", "num_hidden_layers"),
    integerEntry("context_length", "max_position_embeddings"),
    integerEntry("embedding_length", "hidden_size"),
    integerEntry("feed_forward_length", "intermediate_size"),
    integerEntry("attention.head_count", "num_attention_heads"),
    integerEntry("attention.head_count_kv", "num_key_value_heads"),
    integerEntry("attention.key_length", "head_dim"),
    ...(config.num_experts === undefined
      ? []
      : [
          integerEntry("expert_count", "num_experts"),
          integerEntry("expert_used_count", "num_experts_per_tok"),
          integerEntry("expert_feed_forward_length", "moe_intermediate_size"),
        ]),
    floatEntry("attention.layer_norm_rms_epsilon", Number(config.rms_norm_eps)),
    floatEntry("rope.freq_base", Number(theta)),
    ...(scaling && scalingType
      ? [
          textEntry(`${architecture}.rope.scaling.type`, scalingType),
          floatEntry("rope.scaling.factor", Number(scaling.factor)),
        ]
      : []),
    ...(scaling?.original_max_position_embeddings === undefined
      ? []
      : [
          [
            `${architecture}.rope.scaling.original_context_length`,
            u32(4),
            u32(Number(scaling.original_max_position_embeddings)),
          ],
        ]),
    ...extra,
  ];
  await writeFile(path, ggufBytes({ metadata, tensors: ggufTensors, data: file.data }));
}

/** The tensor by which a file divides frequencies, for the rule llama3. */
function ropeFactors(config: TinyModel["config"]): readonly (readonly [string, TinyTensor])[] {
  const rule = config.rope_scaling as Readonly<Record<string, unknown>> | undefined;
  if (rule?.rope_type !== "llama3") return [];
  const width = Number(config.head_dim);
  const [low, high] = [Number(rule.low_freq_factor), Number(rule.high_freq_factor)];
  const values = Float32Array.from({ length: width / 2 }, (_, pair) => {
    const frequency = Number(config.rope_theta) ** ((-2 * pair) / width);
    const rotations = (Number(rule.original_max_position_embeddings) * frequency) / (2 * Math.PI);
    const keptShare = Math.min(1, Math.max(0, (rotations - low) / (high - low)));
    return 1 / (keptShare + (1 - keptShare) / Number(rule.factor));
  });
  return [["rope_freqs.weight", { shape: [width / 2], values }]];
}

/** Stacks the matrices of all experts of a projection into one tensor. Other tensors stay unchanged. */
function stackExperts(tensors: TinyModel["tensors"]): ReadonlyMap<string, TinyTensor> {
  const result = new Map<string, TinyTensor>();
  for (const [name, { shape, values }] of tensors) {
    const stackName = name.replace(/experts\.\d+/, "experts");
    const stack = result.get(stackName);
    if (stackName === name) result.set(name, { shape, values });
    else
      result.set(stackName, {
        shape: [(stack?.shape[0] ?? 0) + 1, ...shape],
        values: Float32Array.of(...(stack?.values ?? []), ...values),
      });
  }
  return result;
}

/** Reorders the rows of each head, so that rows of its first and its second half alternate. */
function alternateHalves(values: Float32Array, heads: number, shape: readonly number[]): Float32Array {
  const rows = shape[0] as number;
  const columns = values.length / rows;
  const width = rows / heads;
  const out = new Float32Array(values.length);
  for (let row = 0; row < rows; row++) {
    const rowInHead = row % width;
    const from = row - rowInHead + (rowInHead % 2) * (width / 2) + Math.floor(rowInHead / 2);
    out.set(values.subarray(from * columns, (from + 1) * columns), row * columns);
  }
  return out;
}
