/** The rules of an `Inspector`: which layers and tensors, and what is done with them. */
import { ArgumentError } from "../../errors.js";
import {
  anyListOf,
  boolean,
  type Domain,
  describe,
  integer,
  listOf,
  needed,
  nested,
  optionsOf,
  text,
} from "../../options.js";
import { PRODUCTS, type Product } from "../../recipes/table.js";
import { nearest } from "../../text/nearest.js";
import { STATISTIC_NAMES, type StatisticName } from "./statistics.js";

/** The operands of the products of a linear layer. */
export const INSPECTED_TENSORS = ["input", "weight", "gradOutput"] as const;
/** A tensor that an `Inspector` observes or changes: an operand of the products of a linear layer. */
export type InspectedTensor = (typeof INSPECTED_TENSORS)[number];

/** Logs statistics of tensors that are quantized, and of the errors of their quantization. */
export interface LogTensorStats {
  /** The tensors. Default: all three. */
  readonly tensors?: readonly InspectedTensor[] | undefined;
  /** The statistics. Default: all. */
  readonly stats?: readonly StatisticName[] | undefined;
  /** The first step that is logged. Default 0. */
  readonly startStep?: number | undefined;
  /** The step before which logging ends. Default: none. */
  readonly endStep?: number | undefined;
  /** Logs every `freq`-th step, beginning with `startStep`. Default 1. */
  readonly freq?: number | undefined;
}

/** Computes products in high precision. */
export interface DisableFP8GEMM {
  /** The products. */
  readonly gemms: readonly Product[];
}

/** Computes products in high precision with operands that are quantized and dequantized. */
export interface FakeQuant {
  /** The products. Default: all three. */
  readonly gemms?: readonly Product[] | undefined;
  /** The operands that are quantized and dequantized; the others stay in high precision. Default: all three. */
  readonly tensors?: readonly InspectedTensor[] | undefined;
}

/** Quantizes operands with a scale from their current amax instead of the scale of delayed scaling. */
export interface PerTensorScaling {
  /** The products. Default: all three. */
  readonly gemms?: readonly Product[] | undefined;
  /** The operands. Default: all three. */
  readonly tensors?: readonly InspectedTensor[] | undefined;
}

/** A feature without options. */
export type NoOptions = Readonly<Record<never, never>>;

/** A rule of an `Inspector`: layers, and features as TransformerEngine names them. */
export interface InspectionRule {
  /**
   * The layers: names of linear products (keys of `namedQuantizations`) or of modules that contain them. `*` stands for any
   * characters, dots included, and `?` for one.
   */
  readonly layers: readonly string[];
  /** Whether the rule applies. The rest of it is checked in any case. Default true. */
  readonly enabled?: boolean | undefined;
  /** Logs statistics. */
  readonly LogTensorStats?: LogTensorStats | undefined;
  /** Computes products in high precision. */
  readonly DisableFP8GEMM?: DisableFP8GEMM | undefined;
  /** Computes the layers in high precision, as outside of autocast regions. */
  readonly DisableFP8Layer?: NoOptions | undefined;
  /** Computes products in high precision with operands that are quantized and dequantized. */
  readonly FakeQuant?: FakeQuant | undefined;
  /** Quantizes operands with a scale from their current amax instead of the scale of delayed scaling. */
  readonly PerTensorScaling?: PerTensorScaling | undefined;
}

/** TransformerEngine's names of tensors. */
const TE_TENSORS: Readonly<Record<string, InspectedTensor>> = { activation: "input", gradient: "gradOutput" };

/** Returns a check that a value is one of `names`. The error for another value suggests its synonym, or the nearest name. */
function nameDomain(names: readonly string[], synonyms: Readonly<Record<string, string>> = {}): Domain {
  return (caller, name, value) => {
    if (typeof value === "string" && names.includes(value)) return value;
    const synonym = typeof value === "string" && Object.hasOwn(synonyms, value) ? synonyms[value] : undefined;
    const hint = synonym
      ? `; did you mean ${synonym}?`
      : typeof value === "string"
        ? nearest(value, names)
        : "";
    throw new ArgumentError(`${caller}: ${name} ${describe(value)} is not one of ${names.join(", ")}${hint}`);
  };
}

const gemms = listOf(nameDomain(PRODUCTS));
const tensors = listOf(nameDomain(INSPECTED_TENSORS, TE_TENSORS));
const step = integer(0);

const checkRule = optionsOf<InspectionRule>({
  layers: needed(listOf(text)),
  enabled: boolean,
  LogTensorStats: nested(
    optionsOf<LogTensorStats>({
      tensors,
      stats: listOf(nameDomain(STATISTIC_NAMES)),
      startStep: step,
      endStep: step,
      freq: integer(1),
    }),
  ),
  DisableFP8GEMM: nested(optionsOf<DisableFP8GEMM>({ gemms: needed(gemms) })),
  DisableFP8Layer: nested(optionsOf<NoOptions>({})),
  FakeQuant: nested(optionsOf<FakeQuant>({ gemms, tensors })),
  PerTensorScaling: nested(optionsOf<PerTensorScaling>({ gemms, tensors })),
});
const checkList = anyListOf(nested(checkRule));

/**
 * Checks rules and returns a copy. Throws `ArgumentError` for an unknown key or name, an invalid value, a rule without a feature,
 * and a rule that changes a product in two ways.
 */
export function checkRules(caller: string, rules: readonly InspectionRule[]): readonly InspectionRule[] {
  const ownRules = checkList(caller, "rules", rules) as readonly InspectionRule[];
  for (const [i, rule] of ownRules.entries()) {
    const { LogTensorStats: log, DisableFP8Layer: disable } = rule;
    const changes = productChanges(rule);
    const name = `rules[${i}]`;
    if (!log && !disable && changes.length === 0)
      throw new ArgumentError(
        `${caller}: ${name} has no feature; give LogTensorStats, or leave the rule out`,
      );
    if (log?.endStep !== undefined && log.endStep <= (log.startStep ?? 0))
      throw new ArgumentError(
        `${caller}: ${name}.LogTensorStats logs no step: endStep ${log.endStep} is not after startStep ${log.startStep ?? 0}`,
      );
    for (const product of PRODUCTS) {
      const [firstChange, second] = changes.filter((each) => each.gemms.includes(product));
      if (firstChange && second)
        throw new ArgumentError(
          `${caller}: ${name} has ${firstChange.feature} and ${second.feature} for ${product}; give each product one of them`,
        );
    }
  }
  return ownRules;
}

/** How a rule changes the operands of products. */
export interface ProductChange {
  readonly feature: "DisableFP8GEMM" | "FakeQuant" | "PerTensorScaling";
  readonly gemms: readonly Product[];
  /** The operands that the change applies to. Other operands stay in high precision, or are quantized as the recipe says. */
  readonly tensors: readonly InspectedTensor[];
}

/** Returns the changes of a rule. */
export function productChanges(rule: InspectionRule): readonly ProductChange[] {
  const { DisableFP8GEMM: disable, FakeQuant: fake, PerTensorScaling: scaling } = rule;
  return [
    ...(disable ? [{ feature: "DisableFP8GEMM", gemms: disable.gemms, tensors: [] } as const] : []),
    ...(fake ? [productChange("FakeQuant", fake)] : []),
    ...(scaling ? [productChange("PerTensorScaling", scaling)] : []),
  ];
}

function productChange(
  feature: ProductChange["feature"],
  { gemms: products = PRODUCTS, tensors: operands = INSPECTED_TENSORS }: FakeQuant,
): ProductChange {
  return { feature, gemms: products, tensors: operands };
}
