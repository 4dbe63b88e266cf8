/** The position of a tensor in a model, and how its two copies are quantized. */
import { copyQuantizersOf } from "../quantizers/copies.js";
import { FakeQuantizer } from "../quantizers/fake.js";
import {
  type ColumnwiseSource,
  type CopyQuantizer,
  HybridQuantizer,
  IdentityQuantizer,
} from "../quantizers/hybrid.js";
import { Quantizer } from "../quantizers/quantizer.js";
import type { Direction, Usage } from "../tensor/quantized.js";
import type { BackwardOverride, Role } from "./table.js";
import { passOf } from "./table.js";

/** The tensor for which a quantizer is created. TransformerEngine's `QuantizerRole`. */
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

/** The layer for which quantizers are created. */
export type LayerPosition = Omit<QuantizerRole, "tensorType">;

/** The position of a layer whose name is not known. */
export const UNNAMED: LayerPosition = { moduleType: "linear", name: "" };

/** The quantizer of a tensor: one for both copies, one for each copy, or none. */
export type OperandQuantizer = CopyQuantizer | HybridQuantizer;

/** Whether `x` is one of these quantizers. */
export function isOperandQuantizer(x: unknown): x is OperandQuantizer {
  if (x instanceof Quantizer || x instanceof FakeQuantizer) return true;
  return x instanceof HybridQuantizer || x instanceof IdentityQuantizer;
}

/** How the two copies of a tensor are quantized. A copy without a quantizer is in high precision. */
export interface RoleCopies {
  readonly rowwise: Quantizer | undefined;
  readonly columnwise: Quantizer | undefined;
  /** The source of the columnwise copy. */
  readonly columnwiseSource: ColumnwiseSource;
  /** Which copies are dequantized again, so that their products compute in high precision. */
  readonly dequantized: Usage;
}

const NO_COPY: Usage = { rowwise: false, columnwise: false };
const WIDE: RoleCopies = {
  rowwise: undefined,
  columnwise: undefined,
  columnwiseSource: "original",
  dequantized: NO_COPY,
};

/** Returns how the copies of a role's tensor are quantized, if `override` says how gradients are computed. */
export function copiesOf(quantizer: OperandQuantizer, role: Role, override: BackwardOverride): RoleCopies {
  const copies = ownCopies(quantizer);
  if (override === "none") return copies;
  if (passOf(role) === "backward") return WIDE;
  const columnwiseSource = override === "dequantized" ? "rowwiseDequantized" : "original";
  const dequantized = { rowwise: copies.dequantized.rowwise, columnwise: false };
  return { rowwise: copies.rowwise, columnwise: undefined, columnwiseSource, dequantized };
}

function ownCopies(quantizer: OperandQuantizer): RoleCopies {
  const {
    rowwiseQuantizer,
    columnwiseQuantizer,
    columnwiseSource = "original",
  } = copyQuantizersOf(quantizer);
  return {
    rowwise: madeBy(rowwiseQuantizer),
    columnwise: madeBy(columnwiseQuantizer),
    columnwiseSource,
    dequantized: {
      rowwise: rowwiseQuantizer instanceof FakeQuantizer,
      columnwise: columnwiseQuantizer instanceof FakeQuantizer,
    },
  };
}

/** The quantizer that makes the codes of a copy. Undefined for a copy in high precision. */
function madeBy(copy: CopyQuantizer): Quantizer | undefined {
  if (copy instanceof FakeQuantizer) return copy.quantizer;
  return copy instanceof Quantizer ? copy : undefined;
}

/** Returns the quantizer of a copy whose codes a product multiplies. Undefined if the product computes in high precision. */
export function codesQuantizer(copies: RoleCopies, direction: Direction): Quantizer | undefined {
  return copies.dequantized[direction] ? undefined : copies[direction];
}

/** Whether one quantizer makes both copies. */
export function sharesQuantizer({ rowwise, columnwise }: RoleCopies): boolean {
  return rowwise !== undefined && rowwise === columnwise;
}

/** Whether one quantizer makes both copies, and products multiply their codes. */
export function isPlain(copies: RoleCopies): boolean {
  const { rowwise, columnwise } = copies.dequantized;
  return sharesQuantizer(copies) && !rowwise && !columnwise;
}
