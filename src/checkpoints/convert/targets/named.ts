/** The names of all conversion targets. */
import { DIALECT_NAMES, type DialectName } from "../../../dialects/table.js";
import { ArgumentError } from "../../../errors.js";
import type { BlockFormatName } from "../../../formats/block.js";
import { WIDE_TARGETS, type WideTarget } from "../dequantize/round.js";
import { LOCKSTEP_TARGETS, type LockstepTarget } from "./lockstep.js";
import { type DialectTarget, TARGETS, type Target } from "./table.js";

/** A conversion target: a wide type, the form of another library, or the form of a quantizer of this library. */
export type ConversionTarget = WideTarget | DialectTarget | LockstepTarget;

/** The names of the forms of other libraries. */
export const DIALECT_TARGETS = Object.keys(TARGETS) as readonly DialectTarget[];

/** Every name that `convertCheckpoint` takes. */
export const CONVERSION_TARGETS: readonly ConversionTarget[] = [
  ...WIDE_TARGETS,
  ...DIALECT_TARGETS,
  ...LOCKSTEP_TARGETS.keys(),
];

/** A parsed target: exactly one field besides `name` is set. */
export type NamedTarget = { readonly name: ConversionTarget } & (
  | { readonly wide: WideTarget; readonly dialectTarget?: never; readonly lockstepQuantizer?: never }
  | { readonly wide?: never; readonly dialectTarget: Target; readonly lockstepQuantizer?: never }
  | { readonly wide?: never; readonly dialectTarget?: never; readonly lockstepQuantizer: BlockFormatName }
);

/** Reasons why some dialects are not conversion targets. */
const REASONS = {
  none: "it has no files of its own; lockstep quantize --dialect writes those of Lockstep",
  six: "the files of torchao have no six-bit codes",
  gptOss: "its files are written by the name gpt-oss",
  shape: "no library loads files of it whose layout is known",
  offset: "conversion writes no codes plus 8; lockstep quantize --dialect writes files of Lockstep",
  unwritten:
    "conversion does not write its library's files; lockstep quantize --dialect writes those of Lockstep",
  activations: "its bound is that of activations, which no file holds; fbgemm-fp8 is the form of weights",
} as const;

const NOT_WRITTEN: Readonly<Partial<Record<DialectName, keyof typeof REASONS>>> = {
  te: "none",
  "ocp-mxfp8": "none",
  "ocp-mxfp6": "none",
  "ocp-mxfp4": "none",
  "ocp-mxint8": "none",
  "fbgemm-fp8-block": "none",
  "torchao-mxfp6-floor": "six",
  "torchao-mxfp6-rceil": "six",
  "torchao-mxfp6-ceil": "six",
  "torchao-mxfp6-even": "six",
  "modelopt-int4-block": "shape",
  "ct-int4-group": "offset",
  "quark-amdfp4": "unwritten",
  "triton-mxfp8": "none",
  "gptoss-mxfp4": "gptOss",
  "fbgemm-fp8-ub1200": "activations",
};

/**
 * Parses the name of a target. Throws `ArgumentError` for an unknown name. If it is the name of a dialect, the message has the
 * reason why the dialect is not a target.
 */
export function parseTarget(name: string): NamedTarget {
  const wide = WIDE_TARGETS.find((type) => type === name);
  if (wide) return { name: wide, wide };
  const dialect = DIALECT_NAMES.find((each) => each === name);
  const target = DIALECT_TARGETS.find((each) => each === name);
  if (target) {
    const row: Target = TARGETS[target];
    return { name: target, dialectTarget: row.dialect === undefined && dialect ? { ...row, dialect } : row };
  }
  for (const [lockstep, lockstepQuantizer] of LOCKSTEP_TARGETS)
    if (lockstep === name) return { name: lockstep, lockstepQuantizer };
  const targetNames = CONVERSION_TARGETS.join(", ");
  const reason = dialect && NOT_WRITTEN[dialect];
  if (reason)
    throw new ArgumentError(`${name} cannot be written: ${REASONS[reason]}; there are ${targetNames}`);
  throw new ArgumentError(`"${name}" is not one of ${targetNames}`);
}
