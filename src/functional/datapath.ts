/** How layers multiply outside of autocast. */
import type { Backend } from "../backends/backend.js";
import type { DatapathFamily } from "../formats/datapath.js";
import type { WideDType } from "../tensor/shape.js";

/** The backend's datapath; f32 is multiplied in f32, since no tensor core does that to the bit. */
export function plainDatapath({ datapath }: Backend, dtype: WideDType): DatapathFamily {
  return dtype === "f32" && datapath !== "exact" ? "fp32" : datapath;
}
