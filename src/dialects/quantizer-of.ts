/** Quantizers that do what another library does. */
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
  /** The quantizer, for a dialect that has several; default: the first one. */
  readonly quantizer?: BlockFormatName | undefined;
  /** The element format, one of the dialect's. Default: its first. */
  readonly format?: ScalarFormat | undefined;
  /** The tile, one of the dialect's. Default: its first. */
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
 * Creates the quantizer that gives the codes and scales of another library for finite values, to the bit (docs/dialects.md).
 *
 * @throws `ArgumentError` for an unknown dialect, and for a quantizer, format or tile that the dialect does not have.
 */
export function quantizerOf(options: QuantizerOfOptions): Quantizer {
  const ownOptions = checkOptions("quantizerOf", options);
  const { dialect, quantizer, ...others } = ownOptions;
  return quantizerNamed(...dialectSettings(dialect, quantizer, others));
}

/**
 * The form of a dialect for a quantizer, or its first one. Throws `ArgumentError` if it has none for that quantizer.
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
 * The arguments of `quantizerNamed` for a dialect. Throws `ArgumentError` for a format or tile that it does not have, and for a
 * setting that it fixes to another value.
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
  const among = <T extends string>(option: string, given: T | undefined, all: readonly T[]): T => {
    const found = given === undefined ? all[0] : given;
    if (found !== undefined && all.includes(found)) return found;
    throw new ArgumentError(`the dialect ${name} has no ${option} ${named(given)}; it has ${all.join(", ")}`);
  };
  for (const [option, value] of Object.entries(fixed)) {
    const given = settings[option as keyof typeof fixed];
    if (given !== undefined && given !== value)
      throw new ArgumentError(
        `the dialect ${name} has ${option} ${value}, not ${named(given)}; leave it out`,
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
