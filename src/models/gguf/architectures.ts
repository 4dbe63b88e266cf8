/** The names of tensors in GGUF files. */
import { GGUF_ARCHITECTURES, type GgufArchitecture } from "../../checkpoints/gguf/model-config.js";
import { FileError } from "../../errors.js";
import { describe } from "../../options.js";
import type { CausalLMConfig } from "../config/config.js";
import type { WeightNames, WeightPlace } from "../weights/places.js";

/** The tensor that divides the frequencies of rotary embeddings. It is part of the configuration. */
export const ROPE_FACTORS = "rope_freqs.weight";

/** The architectures whose rows of the projections of queries and keys lie in the order of neighbouring pairs. */
const PAIRED: ReadonlySet<string> = new Set(["llama"]);

/** The names of modules outside of layers in GGUF files, by those of Hugging Face. */
const MODULE_NAMES: Readonly<Record<string, string>> = {
  "model.embed_tokens": "token_embd",
  "model.norm": "output_norm",
  lm_head: "output",
};

/** The names of the modules of a layer in GGUF files, by those of Hugging Face. */
const LAYER_NAMES: Readonly<Record<string, string>> = {
  input_layernorm: "attn_norm",
  "self_attn.q_proj": "attn_q",
  "self_attn.k_proj": "attn_k",
  "self_attn.v_proj": "attn_v",
  "self_attn.o_proj": "attn_output",
  "self_attn.q_norm": "attn_q_norm",
  "self_attn.k_norm": "attn_k_norm",
  post_attention_layernorm: "ffn_norm",
  "mlp.gate_proj": "ffn_gate",
  "mlp.up_proj": "ffn_up",
  "mlp.down_proj": "ffn_down",
  "mlp.gate": "ffn_gate_inp",
  "mlp.experts.gate_proj": "ffn_gate_exps",
  "mlp.experts.up_proj": "ffn_up_exps",
  "mlp.experts.down_proj": "ffn_down_exps",
};

/** The architecture of a file. Throws `FileError` for an unknown one. */
export function architectureOf(path: string, name: unknown): GgufArchitecture {
  const architecture = GGUF_ARCHITECTURES.find((each) => each.name === name);
  if (architecture) return architecture;
  const known = GGUF_ARCHITECTURES.map((each) => each.name).join(", ");
  throw new FileError(
    `${path}: general.architecture is ${describe(name)}; the architectures that can run are ${known}`,
  );
}

/** The architecture of a model of this type, whose folder has the names of GGUF files. Throws `FileError` for others. */
export function architectureOfType(path: string, modelType: string): GgufArchitecture {
  const architecture = GGUF_ARCHITECTURES.find((each) => each.modelType === modelType);
  if (architecture) return architecture;
  throw new FileError(`${path}: the tensors have names of GGUF files, which are not known for ${modelType}`);
}

/** A module of one expert. Files have the matrices of all experts in one tensor. */
const EXPERT = /^mlp\.experts\.(\d+)\./;
const LAYER = /^model\.layers\.(\d+)\.(.+)$/;

/** The names of the tensors in a file of this architecture. */
export function ggufNames(architecture: GgufArchitecture, { layers }: CausalLMConfig): WeightNames {
  const placeOf = (parameter: string): WeightPlace => {
    const dot = parameter.lastIndexOf(".");
    const [module, kind] = [parameter.slice(0, dot), parameter.slice(dot + 1)];
    const [, index = "", inner = ""] = LAYER.exec(module) ?? [];
    if (index === "") return { tensor: `${MODULE_NAMES[module] ?? module}.${kind}` };
    const { attention, feedForward } = layers[Number(index)] as CausalLMConfig["layers"][number];
    const heads: Readonly<Record<string, number>> = {
      "self_attn.q_proj": attention.heads,
      "self_attn.k_proj": attention.keyValueHeads,
    };
    const [, expert] = EXPERT.exec(inner) ?? [];
    if (expert !== undefined && feedForward.kind === "experts") {
      const stack = inner.replace(EXPERT, "mlp.experts.");
      const matrix = { index: Number(expert), count: feedForward.count };
      return { tensor: `blk.${index}.${LAYER_NAMES[stack] ?? stack}.${kind}`, matrix };
    }
    return {
      tensor: `blk.${index}.${LAYER_NAMES[inner] ?? inner}.${kind}`,
      pairedHeads: PAIRED.has(architecture.name) ? heads[inner] : undefined,
    };
  };
  return { placeOf, isIgnored: (tensor) => tensor === ROPE_FACTORS };
}
