/** Quantizers that reproduce other libraries. */
import { ArgumentError } from "../errors.js";
import { BLOCK_FORMAT_NAMES, type BlockFormatName, blockFormat, type Tile } from "../formats/block.js";
import { resolveFormat } from "../formats/derive.js";
import type { ScalarFormat } from "../formats/scalar.js";
import { anything, named, needed, oneOf, optionsOf } from "../options.js";
import { type QuantizerSettings, quantizerNamed } from "../quantizers/named.js";
import { QUANTIZER_OPTIONS, type Quantizer, type QuantizerOptions } from "../quantizers/quantizer.js";
import { DIALECT_NAMES, DIALECTS, type Dialect, type DialectForm, type DialectName } from "./table.js";

/** Options of `quantizerOf`. Only `dialect` is required. */
export interface QuantizerOfOptions extends QuantizerOptions {
  /** The dialect: a key of `DIALECTS`. */
  readonly dialect: DialectName;
  /** The quantizer, for a dialect with several. Default: the first. */
  readonly quantizer?: BlockFormatName | undefined;
  /** The element format, one of the dialect's formats. Default: the first. */
  readonly format?: ScalarFormat | undefined;
  /** The tile, one of the dialect's tiles. Default: the first. */
  readonly tile?: Tile | undefined;
}

const checkOptions = optionsOf<QuantizerOfOptions>({
  ...QUANTIZER_OPTIONS,
  dialect: needed(oneOf(DIALECT_NAMES)),
  quantizer: oneOf(BLOCK_FORMAT_NAMES),
  format: anything,
  tile: anything,
});

/**
 * Creates a quantizer that gives another library's codes and scales in every bit, for finite values (docs/dialects.md).
 *
 * @throws `ArgumentError` for an unknown dialect, and for a quantizer, format or tile that the dialect does not have.
 */
export function quantizerOf(options: QuantizerOfOptions): Quantizer {
  const ownOptions = checkOptions("quantizerOf", options);
  const { dialect, quantizer, ...others } = ownOptions;
  return quantizerNamed(...dialectSettings(dialect, quantizer, others));
}

/**
 * The form of a dialect for a quantizer; default: its first form. Throws `ArgumentError` if it has none for that quantizer.
 *
 * @shared
 */
export function formOf(name: DialectName, quantizer?: BlockFormatName): DialectForm {
  const { forms }: Dialect = DIALECTS[name];
  const form = quantizer === undefined ? forms[0] : forms.find((each) => each.quantizer === quantizer);
  if (form) return form;
  const names = forms.map((each) => each.quantizer).join(", ");
  throw new ArgumentError(`the dialect ${name} has no quantizer ${quantizer}; it has ${names}`);
}

/**
 * The arguments of `quantizerNamed` for a dialect. Throws `ArgumentError` for a format or tile that the dialect does not have,
 * and for a setting whose value the dialect fixes differently.
 *
 * @shared
 */
export function dialectSettings(
  name: DialectName,
  quantizer: BlockFormatName | undefined,
  settings: QuantizerSettings,
): [BlockFormatName, QuantizerSettings] {
  const form = formOf(name, quantizer);
  const row = blockFormat(form.quantizer);
  const { formats = row.elements, tiles = row.tiles, fixed } = form;
  const among = <T extends string>(option: string, requested: T | undefined, all: readonly T[]): T => {
    const selected = requested === undefined ? all[0] : requested;
    if (selected !== undefined && all.includes(selected)) return selected;
    throw new ArgumentError(
      `the dialect ${name} has no ${option} ${named(requested)}; it has ${all.join(", ")}`,
    );
  };
  for (const [option, value] of Object.entries(fixed)) {
    const setting = settings[option as keyof typeof fixed];
    if (setting !== undefined && setting !== value)
      throw new ArgumentError(
        `the dialect ${name} has ${option} ${value}, not ${named(setting)}; leave it out`,
      );
  }
  const format = among(
    "format",
    settings.format === undefined ? undefined : resolveFormat(settings.format),
    formats,
  );
  const tile = among("tile", settings.tile, tiles);
  return [form.quantizer, { ...settings, ...fixed, format, tile }];
}
