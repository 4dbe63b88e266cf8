/** The names of tensors in GGUF files. */
import { GGUF_ARCHITECTURES, type GgufArchitecture } from "../../checkpoints/gguf/architectures.js";
import type { GgufFacts } from "../../checkpoints/gguf/facts.js";
import { FileError } from "../../errors.js";
import { describe } from "../../options.js";
import { elementCount } from "../../tensor/shape.js";
import type { AttentionConfig, CausalLMConfig, DecoderLayerConfig } from "../config/config.js";
import type { WeightNames, WeightSource } from "../weights/sources.js";

/** The tensor of the divisors of the rotary frequencies. It is part of the configuration. */
export const ROPE_FACTORS = "rope_freqs.weight";

/** The architectures in which the rows of query and key projections are in the order of neighbouring pairs. */
const PAIRED: ReadonlySet<string> = new Set(["llama"]);

/** The GGUF names of modules outside of layers, by Hugging Face's names. */
const MODULE_NAMES: Readonly<Record<string, string>> = {
  "model.embed_tokens": "token_embd",
  "model.norm": "output_norm",
  lm_head: "output",
};

/** The GGUF names of the modules of a layer, by Hugging Face's names. */
const LAYER_NAMES: Readonly<Record<string, string>> = {
  input_layernorm: "attn_norm",
  "self_attn.q_proj": "attn_q",
  "self_attn.k_proj": "attn_k",
  "self_attn.v_proj": "attn_v",
  "self_attn.o_proj": "attn_output",
  "self_attn.q_norm": "attn_q_norm",
  "self_attn.k_norm": "attn_k_norm",
  "self_attn.q_a_proj": "attn_q_a",
  "self_attn.q_a_layernorm": "attn_q_a_norm",
  "self_attn.q_b_proj": "attn_q_b",
  "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa",
  "self_attn.kv_a_layernorm": "attn_kv_a_norm",
  "self_attn.kv_b_proj": "attn_kv_b",
  post_attention_layernorm: "ffn_norm",
  pre_feedforward_layernorm: "ffn_norm",
  post_feedforward_layernorm: "post_ffw_norm",
  "mlp.gate_proj": "ffn_gate",
  "mlp.up_proj": "ffn_up",
  "mlp.down_proj": "ffn_down",
  "mlp.gate": "ffn_gate_inp",
  "mlp.router": "ffn_gate_inp",
  "mlp.experts.gate_proj": "ffn_gate_exps",
  "mlp.experts.up_proj": "ffn_up_exps",
  "mlp.experts.down_proj": "ffn_down_exps",
  "mlp.shared_experts.gate_proj": "ffn_gate_shexp",
  "mlp.shared_experts.up_proj": "ffn_up_shexp",
  "mlp.shared_experts.down_proj": "ffn_down_shexp",
};

/** Names that differ in some architectures. */
const ARCHITECTURE_NAMES: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  gemma3: { post_attention_layernorm: "post_attention_norm" },
  "gpt-oss": { post_attention_layernorm: "post_attention_norm" },
};

/** The GGUF names of parameters that files store as the weight or the bias of a separate module. */
const PARAMETER_NAMES: Readonly<Record<string, string>> = {
  "self_attn.sinks": "attn_sinks.weight",
  "mlp.gate.e_score_correction_bias": "exp_probs_b.bias",
};

/** The architecture of a file. Throws `FileError` for an unknown one. */
export function architectureOf(path: string, name: unknown): GgufArchitecture {
  const architecture = GGUF_ARCHITECTURES.find((each) => each.name === name);
  if (architecture) return architecture;
  const supported = GGUF_ARCHITECTURES.map((each) => each.name).join(", ");
  throw new FileError(
    `${path}: general.architecture is ${describe(name)}; the architectures that can run are ${supported}`,
  );
}

/**
 * The architecture of a `model_type`, for a folder whose tensors have the names of GGUF files. Throws `FileError` for an unknown
 * type.
 */
export function architectureOfType(path: string, modelType: string): GgufArchitecture {
  const architecture = GGUF_ARCHITECTURES.find((each) => each.modelType === modelType);
  if (architecture) return architecture;
  throw new FileError(`${path}: the tensors have names of GGUF files, which are not known for ${modelType}`);
}

/** Throws `FileError` if the metadata lack a key that the architecture needs. */
export function requireKeys(
  path: string,
  { name, required = [] }: GgufArchitecture,
  metadata: GgufFacts["metadata"],
): void {
  const missing = required.map((key) => `${name}.${key}`).filter((key) => metadata[key] === undefined);
  if (missing.length > 0)
    throw new FileError(`${path}: the metadata have no ${missing.join(" and no ")}; the model needs it`);
}

/** A parameter of one expert. Files have the matrices of all experts in one tensor. */
const EXPERT = /^mlp\.experts\.(\d+)\.(.+)\.(weight|bias)$/;
const LAYER = /^model\.layers\.(\d+)\.(.+)$/;
const LATENT = "self_attn.kv_b_proj.weight";

/** The layer of a parameter, and the settings that its tensor names depend on. */
interface LayerNaming {
  readonly nameOf: (module: string) => string;
  readonly layer: DecoderLayerConfig;
  readonly hiddenSize: number;
}

/** The names of the tensors in a file of this architecture. `has` tells whether the file has a tensor of a name. */
export function ggufNames(
  { name: architecture }: GgufArchitecture,
  { layers, hiddenSize, zeroCenteredNorms }: CausalLMConfig,
  has: (tensor: string) => boolean,
): WeightNames {
  // norm weights in files include the number that the module adds to its own weight
  const addend = zeroCenteredNorms ? 1 : undefined;
  const sourcesOf = (parameter: string): readonly WeightSource[] => {
    const [, index = "", inner = ""] = LAYER.exec(parameter) ?? [];
    if (index === "") {
      const [module, kind] = splitName(parameter);
      const tensor = `${MODULE_NAMES[module] ?? module}.${kind}`;
      return [{ tensor, addend: tensor === FINAL_NORM ? addend : undefined }];
    }
    const block = `blk.${index}`;
    const layer = layers[Number(index)] as DecoderLayerConfig;
    const nameOf = (module: string): string =>
      `${block}.${ARCHITECTURE_NAMES[architecture]?.[module] ?? LAYER_NAMES[module] ?? module}`;
    if (EXPERT.test(inner)) return expertSources(inner, { nameOf, layer, hiddenSize });
    const parameterName = PARAMETER_NAMES[inner];
    if (parameterName)
      return [
        {
          tensor: `${block}.${parameterName}`,
          ...(parameterName.startsWith("attn_sinks") ? { shape: [layer.attention.heads] } : {}),
        },
      ];
    const [module, kind] = splitName(inner);
    const tensor = `${nameOf(module)}.${kind}`;
    if (inner === LATENT && !has(tensor)) return latentSources(block, layer.attention);
    const pairedHeads = PAIRED.has(architecture) ? pairedHeadsOf(module, layer.attention) : undefined;
    return [{ tensor, pairedHeads, addend: NORM.test(module) ? addend : undefined }];
  };
  return { sourcesOf, isIgnored: (tensor) => tensor === ROPE_FACTORS };
}

const FINAL_NORM = "output_norm.weight";
const NORM = /norm$/;

/** The name of the module of a parameter, and the parameter's name in it. */
function splitName(parameter: string): readonly [module: string, kind: string] {
  const dot = parameter.lastIndexOf(".");
  return [parameter.slice(0, dot), parameter.slice(dot + 1)];
}

function pairedHeadsOf(module: string, { heads, keyValueHeads }: AttentionConfig): number | undefined {
  if (module === "self_attn.q_proj") return heads;
  return module === "self_attn.k_proj" ? keyValueHeads : undefined;
}

/** The sources of a parameter of an expert. Gate and up of gpt-oss are two tensors. */
function expertSources(inner: string, { nameOf, layer, hiddenSize }: LayerNaming): readonly WeightSource[] {
  const [, expert, projection = "", kind] = EXPERT.exec(inner) ?? [];
  const { feedForward } = layer;
  const count = feedForward.kind === "experts" ? feedForward.count : 0;
  const matrix = { index: Number(expert), count };
  const tensorOf = (each: string): string => `${nameOf(`mlp.experts.${each}`)}.${kind}`;
  if (projection !== "gate_up_proj" || feedForward.kind !== "experts")
    return [{ tensor: tensorOf(projection), matrix }];
  const rows = feedForward.expert.intermediateSize;
  const shape = kind === "bias" ? [rows] : [rows, hiddenSize];
  return [
    { tensor: tensorOf("gate_proj"), matrix, shape },
    { tensor: tensorOf("up_proj"), matrix, shape, first: elementCount(shape) },
  ];
}

/** The sources of the up-projection of keys and values. The keys of each head are transposed. */
function latentSources(block: string, attention: AttentionConfig): readonly WeightSource[] {
  const { heads, headDim, rotary, valueDim: values = headDim, latent } = attention;
  const keys = headDim - rotary.dim;
  const rank = latent?.keyValueRank ?? 0;
  const latentHeads = { heads, keys, values };
  return [
    { tensor: `${block}.attn_k_b.weight`, shape: [heads, rank, keys], first: 0, latentHeads },
    {
      tensor: `${block}.attn_v_b.weight`,
      shape: [heads, values, rank],
      first: heads * rank * keys,
      latentHeads,
    },
  ];
}
