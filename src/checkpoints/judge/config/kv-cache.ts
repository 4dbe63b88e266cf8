/**
 * Checks the scales of the KV cache. An attention layer must have k and v scales, unless no layer with the same role has scales.
 */
import type { Claim } from "../../stored/config/claim.js";
import type { CheckpointTensors } from "../../stored/tensors.js";
import { type Finding, finding } from "../findings.js";

/** Matches the name of a cache scale. Groups: the attention module, and "k", "v" or "kv". */
const SCALE = /^(.*?)\.(?:[kv]_proj\.|attn\.)?(k|v|kv)_scale$/s;
/** Matches the name of a query, key or value projection. Group: the attention module. */
const PROJECTION =
  /^(.*)\.(k_proj|v_proj|q_proj|qkv_proj|kv_b_proj|query_key_value)\.(weight\w*|_weight_qdata)$/s;

interface Attention {
  readonly scales: Set<string>;
}

/** The name of a module with its indices replaced by `*`. Modules with the same role in different layers have the same result. */
const roleOf = (name: string): string => name.replace(/\.\d+(?=\.|$)/g, ".*");

/** Findings about absent cache scales, if the configuration claims them or other layers have them. */
export function judgeKvCache(claim: Claim | undefined, { tensors }: CheckpointTensors): Finding[] {
  const attentions = new Map<string, Attention>();
  const attentionOf = (name: string): Attention => {
    const attention = attentions.get(name) ?? { scales: new Set<string>() };
    attentions.set(name, attention);
    return attention;
  };
  let hasCacheScale = false;
  for (const name of tensors.keys()) {
    const [, module = "", scaleKind = ""] = SCALE.exec(name) ?? [];
    if (scaleKind !== "") {
      attentionOf(module).scales.add(scaleKind);
      hasCacheScale = true;
    } else {
      const [, attentionName] = PROJECTION.exec(name) ?? [];
      if (attentionName !== undefined) attentionOf(attentionName);
    }
  }
  if (!hasCacheScale)
    return claim?.cache
      ? [
          finding(
            "config-kv-cache",
            claim.path,
            "says that the cache is quantized; no tensor is a k_scale or v_scale",
          ),
        ]
      : [];
  const roles = new Set(
    [...attentions].flatMap(([name, { scales }]) => (scales.size > 0 ? [roleOf(name)] : [])),
  );
  return [...attentions].flatMap(([name, { scales }]) => {
    if (scales.has("kv") || !roles.has(roleOf(name))) return [];
    const missingScales = ["k", "v"].filter((each) => !scales.has(each)).map((each) => `${each}_scale`);
    if (missingScales.length === 0) return [];
    const reason =
      scales.size > 0
        ? `has ${[...scales].map((each) => `${each}_scale`).join()} alone`
        : "has no scale of the cache, and other layers have";
    const verb = missingScales.length === 1 ? "is" : "are";
    return [finding("config-kv-cache", name, `${reason}; ${missingScales.join(" and ")} ${verb} absent`)];
  });
}
