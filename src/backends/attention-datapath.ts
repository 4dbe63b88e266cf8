/** Chooses the datapath of an attention's matrix products. */
import { DATAPATHS, type DatapathRow, datapathFor, familyFor } from "../formats/datapath.js";
import type { Support } from "./backend.js";
import type { AttentionRule } from "./ops/attention.js";

/**
 * Returns the datapath, or the reason why there is none. All backends call this function, so the datapath does not depend on the
 * GPU.
 */
export function attentionDatapath({
  datapath,
  q,
}: Pick<AttentionRule, "datapath" | "q">): Support & ReturnType<typeof datapathFor> {
  const traits = { format: q.dtype };
  const family = familyFor(q.dtype, datapath);
  if (family === "exact")
    return { ok: false, reason: "datapath exact has no rule for attention; use hopper, or f32 operands" };
  const choice = datapathFor(family, traits, traits, false);
  if (!choice.ok) return choice;
  const row: DatapathRow = DATAPATHS[choice.name];
  return row.measured ? { ...choice, agrees: "bits" } : { ...choice, agrees: "bits", unverified: row.source };
}
