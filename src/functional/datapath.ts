/** The datapath of products computed outside autocast. */
import type { Backend } from "../backends/backend.js";
import type { DatapathFamily } from "../formats/datapath.js";
import type { WideDType } from "../tensor/shape.js";

/** Returns the backend's datapath, or `fp32` for f32 operands: no tensor core multiplies f32 operands bit-exactly. */
export function plainDatapath({ datapath }: Backend, dtype: WideDType): DatapathFamily {
  return dtype === "f32" && datapath !== "exact" ? "fp32" : datapath;
}
