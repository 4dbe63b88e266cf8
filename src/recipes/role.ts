/** The place of a tensor in a model, and how its two copies are made. */
import { type ColumnwiseSource, HybridQuantizer, IdentityQuantizer } from "../quantizers/hybrid.js";
import { Quantizer } from "../quantizers/quantizer.js";
import type { BackwardOverride, Role } from "./table.js";
import { passOf } from "./table.js";

/** Which tensor asks for a quantizer. TransformerEngine's `QuantizerRole`. */
export interface QuantizerRole {
  /** The kind of layer: `groupedLinear` for the experts of `GroupedLinear`, else `linear`. */
  readonly moduleType: "linear" | "groupedLinear";
  /** The tensor in the layer. */
  readonly tensorType: Role;
  /**
   * The name of the layer: the key of its product in `namedQuantizations()` of the outermost module that contains it, such as
   * `layers.3.mlp.fc1`. Empty if it is not known: in `checkRecipeSupport`, `quantizedModelInit` and a `LayerQuantization` without
   * the option `name`.
   */
  readonly name: string;
}

/** Which layer asks for the quantizers of its tensors. */
export type LayerPosition = Omit<QuantizerRole, "tensorType">;

/** The position of a layer whose name is not known. */
export const UNNAMED: LayerPosition = { moduleType: "linear", name: "" };

/** What quantizes the tensor of a role: one quantizer of both copies, one for each copy, or none. */
export type OperandQuantizer = Quantizer | HybridQuantizer | IdentityQuantizer;

/** Whether `x` is one of these quantizers. */
export function isOperandQuantizer(x: unknown): x is OperandQuantizer {
  return x instanceof Quantizer || x instanceof HybridQuantizer || x instanceof IdentityQuantizer;
}

/** How the two copies of a tensor are made. A copy without a quantizer is in high precision. */
export interface RoleCopies {
  readonly rowwise: Quantizer | undefined;
  readonly columnwise: Quantizer | undefined;
  /** From which values the columnwise copy is made. */
  readonly columnwiseSource: ColumnwiseSource;
}

/** Returns how a quantizer makes the copies of the tensor of a role, if `override` says how gradients are computed. */
export function copiesOf(quantizer: OperandQuantizer, role: Role, override: BackwardOverride): RoleCopies {
  const copies = ownCopies(quantizer);
  if (override === "none") return copies;
  if (passOf(role) === "backward")
    return { rowwise: undefined, columnwise: undefined, columnwiseSource: "original" };
  const columnwiseSource = override === "dequantized" ? "rowwiseDequantized" : "original";
  return { rowwise: copies.rowwise, columnwise: undefined, columnwiseSource };
}

function ownCopies(quantizer: OperandQuantizer): RoleCopies {
  if (quantizer instanceof Quantizer)
    return { rowwise: quantizer, columnwise: quantizer, columnwiseSource: "original" };
  if (quantizer instanceof IdentityQuantizer)
    return { rowwise: undefined, columnwise: undefined, columnwiseSource: "original" };
  const { rowwiseQuantizer, columnwiseQuantizer, columnwiseSource } = quantizer;
  const madeBy = (copy: HybridQuantizer["rowwiseQuantizer"]): Quantizer | undefined =>
    copy instanceof Quantizer ? copy : undefined;
  return { rowwise: madeBy(rowwiseQuantizer), columnwise: madeBy(columnwiseQuantizer), columnwiseSource };
}

/** Whether one quantizer makes both copies. */
export function isPlain({ rowwise, columnwise }: RoleCopies): boolean {
  return rowwise !== undefined && rowwise === columnwise;
}
