/** The metadata of quantized tensors: reading inverts writing, and invalid metadata are refused by the field's name. */
import { describe, expect, it } from "vitest";
import { FileError } from "../../../../src/errors.js";
import { BLOCK_FORMAT_NAMES, type BlockFormatName, blockFormat } from "../../../../src/formats/block.js";
import {
  formatRecipe,
  isCheckpoint,
  type Recipe,
  recipeSubject,
} from "../../../../src/io/quantized/recipe.js";
import { parseRecipe } from "../../../../src/io/quantized/recipe-parser.js";
import { RHT_SIGNS } from "../../../../src/ops/quantize/hadamard.js";
import { DIRECTIONS } from "../../../../src/tensor/quantized.js";
import { WIDE_DTYPES } from "../../../../src/tensor/shape.js";
import { layoutsOf, specsOf } from "../../../arbitraries/specs.js";
import { sampleCases } from "../../harness/draws.js";

const SHAPE = [2, 128, 256];
const USAGES = [...DIRECTIONS.map((direction) => [direction]), DIRECTIONS] as const;

/** Every spec of a quantizer, each with the next layout, type and copies in turn. */
function recipesOf(name: BlockFormatName): readonly Recipe[] {
  return specsOf(name).flatMap((spec, i) =>
    layoutsOf(spec).map((scales, j) => ({
      spec,
      shape: SHAPE,
      dtype: WIDE_DTYPES[(i + j) % WIDE_DTYPES.length] ?? "f32",
      scales,
      usage: USAGES[(i + j) % USAGES.length] ?? DIRECTIONS,
    })),
  );
}

const parse = (text: string): Recipe => parseRecipe("x.safetensors", "w", text);
const fieldsOf = (recipe: Recipe): Readonly<Record<string, unknown>> => JSON.parse(formatRecipe(recipe));
const omitFields = (fields: Readonly<Record<string, unknown>>, omittedField: string): string =>
  JSON.stringify(Object.fromEntries(Object.entries(fields).filter(([key]) => key !== omittedField)));

function recipeOrError(text: string): unknown {
  try {
    return parse(text);
  } catch (error) {
    return error;
  }
}

/** Options that files of older versions lack. Files still omit them if they have their defaults. */
const ADDED: readonly string[] = ["scaleRule", "elementScaling", "amaxLimit", "rowScaled"];
/** The same for quantizers without a tensor amax. */
const ADDED_WITHOUT_AMAX: readonly string[] = [...ADDED, "stochastic"];
const REQUIRED = ["quantizer", "format", "shape", "dtype", "scales", "usage"];

describe("metadata of a quantized tensor", () => {
  it.each(BLOCK_FORMAT_NAMES)(
    "of %s have every option of it that is not a default, and nothing else",
    (name) => {
      const { options, tensorAmax } = blockFormat(name);
      const addedFields = tensorAmax ? ADDED : ADDED_WITHOUT_AMAX;
      const recordedFields: readonly string[] = options
        .filter((option) => !addedFields.includes(option))
        .map((option) => (option === "amaxEpsilon" ? "epsilon" : option));
      for (const recipe of sampleCases(recipesOf(name), 4)) {
        const fields = fieldsOf(recipe);
        expect(parse(formatRecipe(recipe))).toEqual(recipe);
        expect(Object.keys(fields)).toEqual(expect.arrayContaining([...REQUIRED, ...recordedFields]));
        for (const key of Object.keys(fields)) {
          if (recordedFields.includes(key)) continue;
          const error = recipeOrError(omitFields(fields, key));
          if (REQUIRED.includes(key)) expect(String(error)).toContain(`${key} is absent`);
          else expect(error).not.toEqual(recipe);
        }
      }
    },
  );

  it("may name the program that wrote them, which no reader looks at", () => {
    const [recipe] = recipesOf("nvfp4") as [Recipe];
    const text = formatRecipe(recipe, { backend: "wasm", version: "1.2.3" });
    expect(JSON.parse(text)).toEqual({ ...fieldsOf(recipe), backend: "wasm", version: "1.2.3" });
    expect(parse(text)).toEqual(recipe);
  });

  const WRONG: Readonly<Record<string, readonly unknown[]>> = {
    quantizer: ["mxfp9", "toString", 8, null, true, ["nvfp4"]],
    format: ["e9m9", "toString", 4, null, ["e2m1"]],
    tile: ["3x3", "1X16", 16, null, ["1x16"]],
    elementScaling: ["x", "toString", 1, null, ["multiply"], "divide"],
    scaleRule: ["floor", "toString", 1, null, ["twoLevel"], "e8m0Floor"],
    pow2Scales: [1, "true", null],
    epsilon: ["0", null, true, -1],
    rht: [1, "true", null],
    rhtSigns: ["1", null, true, 2 ** 16, -1, 0.5],
    stochastic: [0, "false", null],
    compact: [0, "false", null],
    fourOverSix: ["max", 1, null, "MAE"],
    e4m3Max: [447, "448", null, 0, true],
    rowScaled: [0, "false", null],
    shape: ["128", 128, null, [128, -1], [128, 1.5], [128, "128"], [2 ** 53, 128], [-16, -16], [null]],
    dtype: ["e4m3", "F32", 32, null],
    scales: ["zigzag", 1, null, true],
    usage: [[], ["diagonal"], ["rowwise", "x"], "rowwise", null, {}],
  };
  const base = fieldsOf(recipesOf("nvfp4")[0] as Recipe);

  it.each(Object.keys(WRONG))(
    "are refused if %s has an invalid value, by its name and the tensor's",
    (key) => {
      for (const value of WRONG[key] ?? []) {
        const error = recipeOrError(JSON.stringify({ ...base, [key]: value }));
        expect(error, JSON.stringify(value)).toBeInstanceOf(FileError);
        expect((error as FileError).message).toMatch(/^x\.safetensors: tensor "w": metadata lockstep\.w: /);
        expect((error as FileError).message).toMatch(
          key === "epsilon" ? /epsilon/i : key === "shape" ? /shape|dimension/ : new RegExp(key),
        );
      }
    },
  );

  it.each([
    ["fourOverSix", true, "mae"],
    ["fourOverSix", false, "none"],
    ["fourOverSix", "mse", "mse"],
    ["fourOverSix", "mae", "mae"],
    ["fourOverSix", "none", "none"],
    ["e4m3Max", 448, 448],
    ["format", "E2M1", "e2m1"],
    ["format", "torch.float4_e2m1fn_x2", "e2m1"],
  ] as const)("have %s %j for %j", (key, writtenValue, meaning) => {
    const { spec } = recipesOf("nvfp4")[0] as Recipe;
    const { fourOverSix: _, ...fields } = base;
    expect(parse(JSON.stringify({ ...fields, [key]: writtenValue })).spec).toEqual({
      ...spec,
      fourOverSix: "none",
      [key]: meaning,
    });
  });

  it.each([0, 16])("may describe a tensor without elements, with rows of %i", (columns) => {
    expect(parse(JSON.stringify({ ...base, shape: [0, columns] })).shape).toEqual([0, columns]);
  });

  it("have the default signs of the transform unless they name others", () => {
    const rhtRecipe = recipesOf("nvfp4").find(({ spec }) => spec.rht) as Recipe;
    for (const rhtSigns of [RHT_SIGNS, 3]) {
      const recipe = { ...rhtRecipe, spec: { ...rhtRecipe.spec, rhtSigns } };
      expect(Object.hasOwn(fieldsOf(recipe), "rhtSigns")).toBe(rhtSigns !== RHT_SIGNS);
      expect(parse(formatRecipe(recipe))).toEqual(recipe);
    }
  });

  it.each([
    ["lockstep.checkpoint", '{"version":2}', true],
    ["lockstep.checkpoint", "{}", true],
    ["lockstep.checkpoint", '{"quantizer":"nvfp4"}', false],
    ["lockstep.checkpoint", "[]", false],
    ["lockstep.checkpoint", "null", false],
    ["lockstep.checkpoint", "{", false],
    ["lockstep.checkpoints", "{}", false],
    ["checkpoint", "{}", false],
  ])("are not the record of a checkpoint: %s = %s is %s", (key, text, is) => {
    expect(isCheckpoint(key, text)).toBe(is);
  });

  it("have as key the prefix lockstep. and the tensor's name", () => {
    expect(["lockstep.w", "lockstep.", "lockstep.a.b", "w", "xlockstep.w"].map(recipeSubject)).toEqual([
      "w",
      "",
      "a.b",
      undefined,
      undefined,
    ]);
  });
});
