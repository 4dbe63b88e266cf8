/** The quantizations of the page: every dialect, with each of its quantizers, formats and tiles. */
import {
  BLOCK_FORMATS,
  type BlockFormat,
  type BlockFormatName,
  DIALECTS,
  type Dialect,
  type DialectName,
  type ScalarFormat,
  type Tile,
} from "lockstep";

/** A dialect with one of its quantizers, formats and tiles. */
export interface Choice {
  readonly dialect: DialectName;
  readonly quantizer: BlockFormatName;
  readonly format: ScalarFormat;
  readonly tile: Tile;
}

/** Every choice that the dialects have, in the order of their table. The first tile and format of a form are its default. */
export const CHOICES: readonly Choice[] = Object.entries(DIALECTS).flatMap(([dialect, row]) =>
  (row as Dialect).forms.flatMap(({ quantizer, formats, tiles }) => {
    const { elements, tiles: all }: BlockFormat = BLOCK_FORMATS[quantizer];
    return (tiles ?? all).flatMap((tile) =>
      (formats ?? elements).map((format) => ({ dialect: dialect as DialectName, quantizer, format, tile })),
    );
  }),
);

/** The string of a choice in the address. */
export function keyOf({ dialect, quantizer, format, tile }: Choice): string {
  return [dialect, quantizer, format, tile].join("/");
}

/** The choice of a string; undefined for any other string. */
export function choiceOf(key: string): Choice | undefined {
  return CHOICES.find((choice) => keyOf(choice) === key);
}
