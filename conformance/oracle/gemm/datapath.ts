/** The tables of datapath.md §1 to §3: the datapath for each pair of operands, and its parameters. */
import type { DatapathFamily, DotAdd } from "../../../src/formats/datapath.js";
import type { ScalarFormat } from "../../../src/formats/scalar.js";
import type { OracleTask } from "./gemm.js";

/** The properties of an operand that determine the datapath. */
export interface FactorType {
  readonly format: ScalarFormat | "f32";
  readonly scales?:
    | {
        readonly format: "f32" | "e8m0" | "e4m3" | "ue5m3";
        /** The number of lines that share a scale. */
        readonly lines: number;
        readonly pow2: boolean;
      }
    | undefined;
}

/** The parameters of a product, except its operands and splits. */
export type ProductRule = Pick<OracleTask, "rule" | "staging" | "promotion" | "interval" | "splitTile">;

function row(
  step: number,
  alignBits: number,
  fractionBits: number,
  zeroAccumulator: number,
  { splitTile = 0, group = 1 } = {},
): ProductRule {
  const rule: DotAdd = { step, alignBits, fractionBits, zeroOperand: "none", zeroAccumulator, group };
  return { rule, staging: "plain", promotion: "none", interval: 0, splitTile };
}

const ROWS = {
  "hopper-fp8": row(32, 13, 13, -133, { splitTile: 128 }),
  "hopper-half": row(16, 25, 23, -133, { splitTile: 64 }),
  "hopper-tf32": row(8, 25, 23, -133),
  "ada-fp8": row(16, 13, 13, -132),
  "ada-half": row(8, 24, 23, -132),
  "blackwell-narrow": row(32, 25, 23, -133),
  "blackwell-half": row(16, 25, 23, -133),
  "blackwell-fp4": row(64, 35, 23, -139, { group: 16 }),
};

type Chip = "hopper" | "ada" | "blackwell";

/** A row of the table in datapath.md §3. */
type Line = "mixed" | "fp8" | "fp8Block" | "narrow" | "mx" | "fp4" | "fp4Ue5m3" | "half" | "tf32";

/** Whether bf16 operands multiply codes of this type. Codes with scales of blocks have the formats that products of two have. */
function multipliesBf16({ format, scales }: FactorType): boolean {
  switch (scales?.format) {
    case "f32":
      return format === "e4m3" || format === "e5m2";
    case "e4m3":
    case "ue5m3":
      return format === "e2m1";
    default:
      return ["e4m3", "e5m2", "e2m3", "e3m2", "e2m1"].includes(format);
  }
}

function datapathLine(x: FactorType, w: FactorType): Line | undefined {
  const isBf16 = ({ format, scales }: FactorType): boolean => format === "bf16" && !scales;
  if ((isBf16(x) && multipliesBf16(w)) || (isBf16(w) && multipliesBf16(x))) return "mixed";
  if (x.scales?.format !== w.scales?.format) return undefined;
  const hasBothFormats = (...formats: readonly FactorType["format"][]): boolean =>
    formats.includes(x.format) && formats.includes(w.format);
  const FP8 = ["e4m3", "e5m2"] as const;
  const NARROW_FORMATS = [...FP8, "e2m3", "e3m2", "e2m1"] as const;
  if (x.scales?.format === "f32") return hasBothFormats(...FP8) ? "fp8Block" : undefined;
  if (x.scales?.format === "e4m3") return hasBothFormats("e2m1") ? "fp4" : undefined;
  if (x.scales?.format === "ue5m3") return hasBothFormats("e2m1") ? "fp4Ue5m3" : undefined;
  if (x.scales) return hasBothFormats("e2m1") ? "fp4" : hasBothFormats(...NARROW_FORMATS) ? "mx" : undefined;
  if (hasBothFormats(...FP8)) return "fp8";
  if (hasBothFormats("bf16") || hasBothFormats("f16")) return "half";
  if (hasBothFormats("tf32")) return "tf32";
  return hasBothFormats(...NARROW_FORMATS) ? "narrow" : undefined;
}

/** FP8 with f32 scales for each 128 elements (datapath.md §2). At least one operand has 1x128 tiles. */
function blockScaledRule(x: FactorType, w: FactorType): ProductRule | undefined {
  const rowwise = [x.scales?.lines, w.scales?.lines].filter((lines) => lines === 1).length;
  if (rowwise === 0) return undefined;
  const row = { ...ROWS["hopper-fp8"], interval: 128 };
  return rowwise === 2
    ? { ...row, promotion: "scaleChain", splitTile: 128 }
    : { ...row, promotion: "scaleProduct", splitTile: 512 };
}

const BF16 = { staging: "bf16" } as const;

/** The parameters with which `family` computes X times W; undefined if datapath.md refuses the pair. */
export function productRule(
  family: DatapathFamily,
  x: FactorType,
  w: FactorType,
  splitAccumulator: boolean,
): ProductRule | undefined {
  if (family === "exact" || family === "fp32") {
    return { rule: family, staging: "plain", promotion: "none", interval: 0, splitTile: 0 };
  }
  const line = datapathLine(x, w);
  const pow2 = x.scales?.pow2 === true && w.scales?.pow2 === true;
  const promotion = splitAccumulator ? ({ promotion: "add", interval: 128 } as const) : {};
  const columns: Readonly<Record<Line, Readonly<Record<Chip, ProductRule | undefined>>>> = {
    fp8: {
      hopper: { ...ROWS["hopper-fp8"], ...promotion },
      ada: { ...ROWS["ada-fp8"], ...promotion },
      blackwell: ROWS["blackwell-narrow"],
    },
    fp8Block: {
      hopper: blockScaledRule(x, w),
      ada: undefined,
      blackwell: pow2 ? { ...ROWS["blackwell-narrow"], staging: "scaled" } : undefined,
    },
    narrow: { hopper: undefined, ada: undefined, blackwell: ROWS["blackwell-narrow"] },
    mx: {
      hopper: { ...ROWS["hopper-half"], ...BF16 },
      ada: { ...ROWS["ada-half"], ...BF16 },
      blackwell: { ...ROWS["blackwell-narrow"], staging: "scaled" },
    },
    fp4: {
      hopper: { ...ROWS["hopper-half"], ...BF16 },
      ada: { ...ROWS["ada-half"], ...BF16 },
      blackwell: { ...ROWS["blackwell-fp4"], staging: "grouped" },
    },
    fp4Ue5m3: {
      hopper: { ...ROWS["hopper-half"], ...BF16 },
      ada: { ...ROWS["ada-half"], ...BF16 },
      blackwell: undefined,
    },
    half: {
      hopper: ROWS["hopper-half"],
      ada: ROWS["ada-half"],
      blackwell: ROWS["blackwell-half"],
    },
    mixed: {
      hopper: { ...ROWS["hopper-half"], ...BF16 },
      ada: { ...ROWS["ada-half"], ...BF16 },
      blackwell: { ...ROWS["blackwell-half"], ...BF16 },
    },
    tf32: {
      hopper: { ...ROWS["hopper-tf32"], staging: "tf32" },
      ada: undefined,
      blackwell: undefined,
    },
  };
  return line && columns[line][family];
}
