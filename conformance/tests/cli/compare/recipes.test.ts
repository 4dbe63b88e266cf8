/** `lockstep compare` of quantized tensors with equal codes and scales whose metadata differ in meaning. */
import { describe, expect, it } from "vitest";
import { formatRecipe, type Recipe } from "../../../../src/io/quantized/recipe.js";
import { RHT_SIGNS } from "../../../../src/ops/quantize/hadamard.js";
import type { QuantizeSpec } from "../../../../src/tensor/quantized.js";
import { makeSpec } from "../../../../src/tensor/spec.js";
import { f32, useWorkspace } from "../../harness/cli.js";

const w = useWorkspace();

const NVFP4 = makeSpec("nvfp4", {});
const COLUMNWISE: Recipe = {
  spec: NVFP4,
  shape: [128, 128],
  dtype: "bf16",
  scales: "padded",
  usage: ["columnwise"],
};
const MXFP8: Recipe = { ...COLUMNWISE, spec: makeSpec("mxfp8", {}), usage: ["rowwise"] };

const withSpecFields = (recipe: Recipe, fields: Partial<QuantizeSpec>): Recipe => ({
  ...recipe,
  spec: makeSpec(recipe.spec.quantizer, { ...recipe.spec, ...fields }),
});

/** Pairs whose values differ, by the field that makes the difference. */
const OTHERS: readonly (readonly [field: string, a: Recipe, b: Recipe])[] = [
  ["rht", COLUMNWISE, withSpecFields(COLUMNWISE, { rht: true, rhtSigns: RHT_SIGNS })],
  [
    "rhtSigns",
    withSpecFields(COLUMNWISE, { rht: true }),
    withSpecFields(COLUMNWISE, { rht: true, rhtSigns: RHT_SIGNS }),
  ],
  [
    "e4m3Max",
    withSpecFields(COLUMNWISE, { fourOverSix: "mae", e4m3Max: 448 }),
    withSpecFields(COLUMNWISE, { fourOverSix: "mae", e4m3Max: 256 }),
  ],
  ["role of the amax", COLUMNWISE, withSpecFields(COLUMNWISE, { scaleRule: "twoLevelQuotient" })],
  ["rowScaled", COLUMNWISE, withSpecFields(COLUMNWISE, { rowScaled: true })],
  ["scales", COLUMNWISE, { ...COLUMNWISE, scales: "swizzled" }],
  ["dtype", COLUMNWISE, { ...COLUMNWISE, dtype: "f32" }],
  ["shape", COLUMNWISE, { ...COLUMNWISE, shape: [2, 64, 128] }],
  ["format", MXFP8, withSpecFields(MXFP8, { format: "e5m2" })],
  ["quantizer", MXFP8, { ...MXFP8, spec: makeSpec("mxint8", {}) }],
  ["tile", MXFP8, withSpecFields(MXFP8, { tile: "32x32" })],
];

/** Pairs that were rounded differently but are read in the same way. */
const SAME: readonly (readonly [field: string, a: Recipe, b: Recipe])[] = [
  ["stochastic", COLUMNWISE, withSpecFields(COLUMNWISE, { stochastic: true })],
  ["fourOverSix", COLUMNWISE, withSpecFields(COLUMNWISE, { fourOverSix: "mse", e4m3Max: 448 })],
  ["scaleRule", MXFP8, withSpecFields(MXFP8, { scaleRule: "e8m0Floor" })],
  [
    "elementScaling",
    MXFP8,
    withSpecFields(MXFP8, { scaleRule: "e8m0Floor", elementScaling: "multiplyTypedAdd" }),
  ],
  [
    "rht of a rowwise copy",
    { ...COLUMNWISE, usage: ["rowwise"] },
    withSpecFields({ ...COLUMNWISE, usage: ["rowwise"] }, { rht: true }),
  ],
];

/** Writes two files with the same tensor and different metadata, and compares them. */
async function compareRecipes(a: Recipe, b: Recipe, ...options: readonly string[]) {
  for (const [name, recipe] of [
    ["a", a],
    ["b", b],
  ] as const)
    await w.write(name, [f32("other", [1], [1])], { "lockstep.w": formatRecipe(recipe) });
  return w.run("compare", "@a", "@b", ...options);
}

describe("tensors that are equal by their bits", () => {
  for (const options of [[], ["--stats"], ["--max-abs", "1"]])
    it.each(OTHERS)(`differ if their metadata differ in %s (${options.join(" ")})`, async (field, a, b) => {
      const { status, stdout } = await compareRecipes(a, b, ...options);
      expect(status).toBe(1);
      expect(stdout).toMatch(`w: the metadata say ${field} `);
      const json = JSON.parse((await compareRecipes(b, a, ...options, "--json")).stdout);
      expect(json).toMatchObject({ equal: false, recipes: [{ name: "w", field }] });
      expect(json.passes).toBe(options.length > 0 ? false : undefined);
    });

  it.each(SAME)(
    "are equal if their metadata differ in %s, which says how they were rounded",
    async (_, a, b) => {
      for (const [firstRecipe, secondRecipe] of [
        [a, b],
        [a, a],
      ] as const)
        expect(await compareRecipes(firstRecipe, secondRecipe)).toMatchObject({ status: 0 });
    },
  );

  it("are compared only under the prefix", async () => {
    const [, a, b] = OTHERS[0] as (typeof OTHERS)[number];
    expect((await compareRecipes(a, b, "--prefix", "other")).status).toBe(0);
  });
});
