/** The options that several commands share. */
import type { BackendName } from "../backends/open.js";
import type { OverflowName, RoundingName } from "../backends/ops.js";
import { OVERFLOW, ROUNDING } from "../formats/contract.gen.js";
import { resolveFormat, SCALAR_FORMAT_NAMES } from "../formats/derive.js";
import type { ScalarFormat } from "../formats/scalar.js";
import { SPECIAL_FUNCTIONS, type SpecialFunctionName } from "../formats/special-functions.js";
import { choice, flag, integer, type Option, oneOf, optional, required, u64, value } from "./options.js";

function keysOf<K extends string>(table: Readonly<Record<K, unknown>>): readonly K[] {
  return Object.keys(table) as K[];
}

const ROUNDING_NAMES: readonly RoundingName[] = keysOf(ROUNDING);
const OVERFLOW_NAMES: readonly OverflowName[] = keysOf(OVERFLOW);

/** The options of every command. */
export const GENERAL = {
  backend: choice(["wasm", "cuda", "auto"] satisfies readonly BackendName[], {
    help: "the backend that computes",
    meanings: { wasm: "the reference", cuda: "a GPU", auto: "a GPU if there is one, else the reference" },
    fallback: "wasm",
  }),
  threads: optional({
    placeholder: "N",
    help: "number of threads of the reference (default: the number that the host suggests)",
    parse: integer(1, 64),
  }),
  json: flag("print a single result in JSON on stdout, and nothing else"),
  quiet: flag("print only results, without summaries and progress bars"),
  help: flag("print this help", { short: "h" }),
} as const;

export const OUTPUT: Option<string> = required({
  short: "o",
  placeholder: "OUT",
  help: "safetensors file to write",
  file: "written",
});

/** The option of every command that writes a file. */
export const FORCE = {
  force: flag("write the output even if it is one of the input files"),
} as const;

/** The option for a scalar format, by name or alias. It is required. */
export const FORMAT: Option<ScalarFormat> = {
  ...value<ScalarFormat>({
    placeholder: "F",
    help: `scalar format of the codes: ${SCALAR_FORMAT_NAMES.join(", ")}, or an alias of one`,
    parse: resolveFormat,
    fallback: "e4m3",
  }),
  required: true,
};

const SPECIAL_FUNCTION_NAMES: readonly SpecialFunctionName[] = keysOf(SPECIAL_FUNCTIONS);

/** The option for an instruction of the special-function unit, or a math function of CUDA. */
export const SPECIAL_FUNCTION: Option<SpecialFunctionName | undefined> = optional({
  placeholder: "NAME",
  help: `approximate instruction of a GPU by its name in PTX, or math function of CUDA, where .fast is the function under -use_fast_math: ${SPECIAL_FUNCTION_NAMES.join(", ")}`,
  parse: oneOf(SPECIAL_FUNCTION_NAMES),
});

/** The options of the conversion of values to codes. */
export const ENCODING = {
  rounding: choice(ROUNDING_NAMES, {
    help: "rounding of values between two codes",
    meanings: {
      tiesToEven: "to the nearer one, ties to the even code",
      tiesToAway: "to the nearer one, ties away from zero",
      towardZero: "to the one nearer to zero",
      towardPositive: "to the greater one",
      towardNegative: "to the lesser one",
      toOdd: "to the odd code",
      stochastic: "to either, by random bits",
    },
    fallback: "tiesToEven",
  }),
  overflow: choice(OVERFLOW_NAMES, {
    help: "result for values beyond the largest finite value",
    meanings: {
      saturate: "that value, also for infinities",
      nonfinite: "infinity, or NaN where the format has no infinity",
      propagate: "that value, but infinities as with nonfinite",
    },
    fallback: "saturate",
  }),
} as const;

/** The options of the random bits of stochastic rounding. */
export const RANDOM = {
  seed: value({
    placeholder: "S",
    help: "seed of the random bits for stochastic rounding",
    parse: u64,
    fallback: 0n,
    shown: "0",
  }),
  offset: value({
    placeholder: "O",
    help: "offset of the random bits for stochastic rounding",
    parse: u64,
    fallback: 0n,
    shown: "0",
  }),
} as const;
