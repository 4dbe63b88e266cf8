/** Quantizers by name: options of the named row are used; all others are refused, never replaced. */
import * as fc from "fast-check";
import { expect } from "vitest";
import { ArgumentError } from "../../../src/errors.js";
import {
  BLOCK_FORMAT_NAMES,
  BLOCK_FORMATS,
  type BlockFormat,
  type BlockFormatName,
  blockFormat,
  TILES,
  type Tile,
  tileSize,
} from "../../../src/formats/block.js";
import { SCALAR_FORMAT_NAMES } from "../../../src/formats/derive.js";
import type { ScalarFormat } from "../../../src/formats/scalar.js";
import { tensor } from "../../../src/ops/create.js";
import { quantizerNamed } from "../../../src/quantizers/named.js";
import { RandomState } from "../../../src/quantizers/random-state.js";
import { quantizerFor } from "../../../src/recipes/quantizer-for.js";
import { type RecipeOptions, StandardRecipe } from "../../../src/recipes/recipe.js";
import { type QParams, RECIPES, type RecipeRow, ROLES, type Role } from "../../../src/recipes/table.js";
import { draws } from "../harness/draws.js";
import { testInScope, useBackend } from "../harness/suite.js";

const backend = useBackend();

const strangers = fc.oneof(
  fc.string(),
  fc.constantFrom(
    "toString",
    "__proto__",
    "constructor",
    "mxfp9",
    "MXFP8",
    " mxfp8",
    "tensor",
    "7x7",
    "e9m9",
    "",
  ),
);
const names = fc.oneof(fc.constantFrom(...BLOCK_FORMAT_NAMES), strangers) as fc.Arbitrary<BlockFormatName>;
const formats = fc.oneof(fc.constantFrom(...SCALAR_FORMAT_NAMES), strangers) as fc.Arbitrary<ScalarFormat>;
const tiles = fc.oneof(fc.constantFrom(...TILES), strangers) as fc.Arbitrary<Tile>;

/** A recipe of any row that requests any format and tile. */
class AnyRecipe extends StandardRecipe {
  constructor(
    private readonly recipeRow: Pick<RecipeRow, "quantizer">,
    private readonly element: ScalarFormat,
    private readonly tile: Tile,
    options: RecipeOptions = {},
  ) {
    super("mxfp8", options);
  }

  override get row(): RecipeRow {
    return { ...RECIPES.mxfp8, ...this.recipeRow };
  }

  override elementFormat(): ScalarFormat {
    return this.element;
  }

  override qparams(role: Role): QParams {
    return { ...super.qparams(role), tile: this.tile };
  }
}

function has(name: BlockFormatName, format: ScalarFormat, tile: Tile): boolean {
  if (!Object.hasOwn(BLOCK_FORMATS, name)) return false;
  const row: BlockFormat = BLOCK_FORMATS[name];
  return row.elements.includes(format) && row.tiles.includes(tile);
}

testInScope("the name, format and tile of a row give its quantizer; any others are refused", () => {
  const scale = tensor(backend(), [1]);
  fc.assert(
    fc.property(names, formats, tiles, fc.constantFrom(...ROLES.forward), (name, format, tile, role) => {
      const random = new RandomState(1n);
      const recipe = new AnyRecipe({ quantizer: name }, format, tile);
      for (const make of [
        () => quantizerNamed(name, { format, tile, scale, random }),
        () => quantizerFor(recipe, role, { scale, random }),
      ]) {
        if (has(name, format, tile)) expect(make().spec).toMatchObject({ quantizer: name, format, tile });
        else expect(make).toThrow(ArgumentError);
      }
    }),
    {
      numRuns: draws(500),
      examples: [
        ["mxfp4", "e2m1", "1x32", "input"],
        ["mxfp6", "e2m3", "32x32", "weight"],
        ["mxfp8", "e4m3", "16x16", "weight"],
        ["fp8-block", "e4m3", "1x32", "input"],
        ["nvfp4", "e4m3", "1x16", "input"],
      ],
    },
  );
});

testInScope("the name of every row gives a quantizer of its first format and tile", () => {
  const scale = tensor(backend(), [1]);
  for (const name of BLOCK_FORMAT_NAMES) {
    const { elements, tiles: formatTiles, scaleSource } = blockFormat(name);
    const [format, tile] = [elements[0], formatTiles[0]];
    const scaleOptions = scaleSource === "given" ? { scale } : {};
    expect(quantizerNamed(name, scaleOptions).spec).toMatchObject({ quantizer: name, format, tile });
  }
});

/** Every option, with a value other than its default. */
const ON = {
  ...{ pow2Scales: true, amaxEpsilon: 0.5, rht: true, stochastic: true },
  ...{ fourOverSix: "mae", e4m3Max: 256, rowScaled: true },
} as const;

const choices = fc.record(
  {
    pow2Scales: fc.boolean(),
    amaxEpsilon: fc.constantFrom(0, 0.5),
    rht: fc.boolean(),
    stochastic: fc.boolean(),
    fourOverSix: fc.constantFrom("none" as const, "mae" as const),
    e4m3Max: fc.constantFrom(448 as const, 256 as const),
    rowScaled: fc.boolean(),
  },
  { requiredKeys: [] },
);

/** Pairs of enabled options, for each row that has both. */
const PAIRS = BLOCK_FORMAT_NAMES.flatMap((name) => {
  const switchedOptions = Object.entries(ON).filter(([key]) =>
    blockFormat(name).options.some((option) => option === key),
  );
  return switchedOptions.flatMap(([key, value], i) =>
    switchedOptions
      .slice(i + 1)
      .map(([first, second]): [BlockFormatName, Partial<typeof ON>] => [
        name,
        { [key]: value, [first]: second },
      ]),
  );
});

testInScope("an option is in the spec if the row has it, and else refused unless it is off", () => {
  const scale = tensor(backend(), [1]);
  const noOptions = {
    pow2Scales: false,
    amaxEpsilon: 0,
    rht: false,
    stochastic: false,
    fourOverSix: "none",
    e4m3Max: 448,
    rowScaled: false,
  };
  fc.assert(
    fc.property(fc.constantFrom(...BLOCK_FORMAT_NAMES), choices, (name, fields) => {
      const { options } = blockFormat(name);
      const alien = Object.entries(fields).some(
        ([key, value]) =>
          !options.some((option) => option === key) && value !== noOptions[key as keyof typeof noOptions],
      );
      const contradicts =
        (fields.fourOverSix === "mae" && (fields.rht || fields.stochastic)) ||
        (fields.e4m3Max === 256 && fields.fourOverSix !== "mae") ||
        (fields.rowScaled && (fields.rht || fields.stochastic));
      const make = () => quantizerNamed(name, { ...fields, scale, random: new RandomState(1n) });
      if (alien || contradicts) expect(make).toThrow(ArgumentError);
      else expect(make().spec).toMatchObject(fields);
    }),
    // every pair of options of a row, compatible or not
    { numRuns: draws(300) + PAIRS.length, examples: PAIRS },
  );
});

testInScope("unknown names and tiles are refused by name", () => {
  fc.assert(
    fc.property(strangers, (text) => {
      expect(() => blockFormat(text as BlockFormatName)).toThrow(ArgumentError);
      if (text !== "tensor") expect(() => tileSize(text as Tile)).toThrow(ArgumentError);
    }),
  );
});

testInScope(
  "rows that will be gathered keep the order of the input, in the only tile with a choice of order",
  () => {
    const scale = tensor(backend(), [1]);
    for (const name of BLOCK_FORMAT_NAMES)
      for (const tile of blockFormat(name).tiles)
        for (const isGathered of [undefined, false, true])
          expect(
            quantizerNamed(name, { tile, scale, gathered: isGathered }).spec.compact,
            `${name} ${tile}`,
          ).toBe(isGathered === true && name === "fp8-block" && tile === "1x128");
  },
);
