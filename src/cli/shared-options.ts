/** The options that several commands share. */
import type { BackendName } from "../backends/open.js";
import type { OverflowName, RoundingName } from "../backends/ops.js";
import { OVERFLOW, ROUNDING } from "../formats/contract.gen.js";
import { resolveFormat, SCALAR_FORMAT_NAMES } from "../formats/derive.js";
import type { ScalarFormat } from "../formats/scalar.js";
import { choice, flag, integer, type Option, optional, required, u64, value } from "./options.js";

function keysOf<K extends string>(table: Readonly<Record<K, unknown>>): readonly K[] {
  return Object.keys(table) as K[];
}

const ROUNDING_NAMES: readonly RoundingName[] = keysOf(ROUNDING);
const OVERFLOW_NAMES: readonly OverflowName[] = keysOf(OVERFLOW);

/** The options of every command. */
export const GENERAL = {
  backend: choice(["wasm", "cuda", "auto"] satisfies readonly BackendName[], {
    help: "what computes: the reference, a GPU, or a GPU where there is one",
    fallback: "wasm",
  }),
  threads: optional({
    placeholder: "N",
    help: "threads of the reference (default: what the host suggests)",
    parse: integer(1, 64),
  }),
  json: flag("print one machine-readable result on stdout, nothing else"),
  quiet: flag("print results only: no summaries, no progress bar"),
  help: flag("print this", { short: "h" }),
} as const;

export const OUTPUT: Option<string> = required({
  short: "o",
  placeholder: "OUT",
  help: "the safetensors file to write",
  file: "written",
});

/** The option of every command that writes a file. */
export const FORCE = {
  force: flag("write OUT even where it is one of the files that are read"),
} as const;

/** The option for a scalar format, by name or alias. It is required. */
export const FORMAT: Option<ScalarFormat> = {
  ...value<ScalarFormat>({
    placeholder: "F",
    help: `scalar format: ${SCALAR_FORMAT_NAMES.join(", ")}, or an alias`,
    parse: resolveFormat,
    fallback: "e4m3",
  }),
  required: true,
};

/** The options of the conversion of values to codes. */
export const ENCODING = {
  rounding: choice(ROUNDING_NAMES, { help: "how values between two codes round", fallback: "tiesToEven" }),
  overflow: choice(OVERFLOW_NAMES, { help: "what values beyond the largest become", fallback: "saturate" }),
} as const;

/** The options of the random bits of stochastic rounding. */
export const RANDOM = {
  seed: value({ placeholder: "S", help: "key of the random words", parse: u64, fallback: 0n, shown: "0" }),
  offset: value({
    placeholder: "O",
    help: "counter of the random words",
    parse: u64,
    fallback: 0n,
    shown: "0",
  }),
} as const;
