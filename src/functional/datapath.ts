/** The datapath of products outside of autocast. */
import type { Backend } from "../backends/backend.js";
import type { DatapathFamily } from "../formats/datapath.js";
import type { WideDType } from "../tensor/shape.js";

/** The backend's datapath; but f32 operands are multiplied in f32, because no tensor core does so bit for bit. */
export function plainDatapath({ datapath }: Backend, dtype: WideDType): DatapathFamily {
  return dtype === "f32" && datapath !== "exact" ? "fp32" : datapath;
}
