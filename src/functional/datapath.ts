/** The datapath of products computed outside autocast. */
import type { Backend } from "../backends/backend.js";
import { type DatapathFamily, familyFor } from "../formats/datapath.js";
import type { WideDType } from "../tensor/shape.js";

/** Returns the datapath of a product of operands of that dtype outside autocast. */
export function plainDatapath({ datapath }: Backend, dtype: WideDType): DatapathFamily {
  return familyFor(dtype, datapath);
}
