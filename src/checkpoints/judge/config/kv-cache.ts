/** Scales of the cache of keys and values: every layer that has a cache has both, or none has. */
import type { Claim } from "../../stored/config/claim.js";
import type { CheckpointTensors } from "../../stored/tensors.js";
import { type Finding, finding } from "../findings.js";

/** A scale of the cache: the attention around it, and which of the two it is. */
const SCALE = /^(.*?)\.(?:[kv]_proj\.|attn\.)?(k|v|kv)_scale$/s;
/** A projection of keys or values, or of all at once. */
const PROJECTION =
  /^(.*)\.(k_proj|v_proj|q_proj|qkv_proj|kv_b_proj|query_key_value)\.(weight\w*|_weight_qdata)$/s;

interface Attention {
  readonly scales: Set<string>;
}

/** The name of a module with numbers left out, which layers of one kind share. */
const roleOf = (name: string): string => name.replace(/\.\d+(?=\.|$)/g, ".*");

/** Findings about scales of the cache that are absent, by the configuration or by those of other layers. */
export function judgeKvCache(claim: Claim | undefined, { tensors }: CheckpointTensors): Finding[] {
  const attentions = new Map<string, Attention>();
  const at = (name: string): Attention => {
    const known = attentions.get(name) ?? { scales: new Set<string>() };
    attentions.set(name, known);
    return known;
  };
  let some = false;
  for (const name of tensors.keys()) {
    const [, module = "", which = ""] = SCALE.exec(name) ?? [];
    if (which !== "") {
      at(module).scales.add(which);
      some = true;
    } else {
      const [, around] = PROJECTION.exec(name) ?? [];
      if (around !== undefined) at(around);
    }
  }
  if (!some)
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
    const absent = ["k", "v"].filter((each) => !scales.has(each)).map((each) => `${each}_scale`);
    if (absent.length === 0) return [];
    const why =
      scales.size > 0
        ? `has ${[...scales].map((each) => `${each}_scale`).join()} alone`
        : "has no scale of the cache, and other layers have";
    return [finding("config-kv-cache", name, `${why}; ${absent.join(" and ")} are absent`)];
  });
}
