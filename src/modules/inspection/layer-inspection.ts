/** The hook of the quantizers of a layer. */
import type { Quantizer } from "../../quantizers/quantizer.js";
import type { OperandQuantizer } from "../../recipes/role.js";
import type { Role } from "../../recipes/table.js";

/** How an `Inspector` observes or changes one layer. */
export interface LayerInspection {
  /** Whether the layer computes in high precision. */
  readonly disables: boolean;
  /** Returns the quantizer that replaces `quantizer` for the tensor of a role. */
  operand(role: Role, quantizer: OperandQuantizer): OperandQuantizer;
  /** Returns a quantizer with the same results whose quantizations are observed. */
  observed(role: Role, quantizer: Quantizer): Quantizer;
}
