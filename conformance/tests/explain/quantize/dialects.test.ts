/**
 * Explanations under dialects: values agree with each dialect's dequantization, and a difference between two dialects is reported
 * exactly where they differ.
 */
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { dequantizeAs } from "../../../../src/dialects/dequantize.js";
import { quantizerOf } from "../../../../src/dialects/quantizer-of.js";
import { DIALECT_NAMES, DIALECTS, type Dialect, type DialectName } from "../../../../src/dialects/table.js";
import { ArgumentError } from "../../../../src/errors.js";
import { type DifferingStage, explainDifference } from "../../../../src/explain/explain-difference.js";
import { explainQuantize } from "../../../../src/explain/explain-quantize.js";
import type { QuantizeExplanation } from "../../../../src/explain/quantize.js";
import { blockFormat } from "../../../../src/formats/block.js";
import { factsOf } from "../../../../src/formats/derive.js";
import { Scope } from "../../../../src/tensor/scope.js";
import { words } from "../../../arbitraries/random.js";
import { fromCodes, type PlainTensor, upload } from "../../../values/plain.js";
import { draws } from "../../harness/draws.js";
import { useBackend } from "../../harness/suite.js";

const backend = useBackend({ threads: 1 });
const SIZE = [32, 128] as const;
const COUNT = SIZE[0] * SIZE[1];

/** Every dialect with each of its quantizers, formats and tiles. */
const FORMS = DIALECT_NAMES.flatMap((dialect) =>
  (DIALECTS[dialect] as Dialect).forms.flatMap(({ quantizer, formats, tiles }) => {
    const { elements, tiles: allTiles } = blockFormat(quantizer);
    return (tiles ?? allTiles).flatMap((tile) =>
      (formats ?? elements).map((format) => ({ dialect, quantizer, format, tile })),
    );
  }),
);
type Form = (typeof FORMS)[number];

/** Bit patterns of any kind: many near 1, zeros, subnormals, infinities and NaN. */
function drawInput(seed: number, dtype: "f32" | "bf16" | "f16"): PlainTensor<"f32" | "bf16" | "f16"> {
  const patterns = words(seed, COUNT).map((word) => {
    const exponent = 120 + (word % 10);
    return word % 7 === 0
      ? word
      : (((word >>> 9) % 2 ** 23) + exponent * 2 ** 23 + (word & 256) * 2 ** 23) >>> 0;
  });
  const codes = dtype === "f32" ? patterns : patterns.map((word) => (word % 5 === 0 ? 0x8000 : word >>> 16));
  return fromCodes(dtype, SIZE, codes);
}

/** A form's quantization of a tensor, and its explanations of elements. */
function madeBy({ dialect, quantizer, format, tile }: Form, x: PlainTensor<"f32" | "bf16" | "f16">) {
  using _scope = new Scope();
  const quantizedTensor = quantizerOf({ dialect, quantizer, format, tile }).quantize(upload(backend(), x));
  const values = dequantizeAs(quantizedTensor, { dialect, dtype: "f32" }).dataSync() as Float32Array;
  const { spec } = quantizedTensor;
  const rule = (DIALECTS[dialect] as Dialect).values;
  const data = upload(backend(), x).dataSync() as Float32Array;
  const plainInput = { data: data.slice(), dtype: x.dtype, shape: SIZE } as const;
  return {
    values,
    explain: (position: number) =>
      explainQuantize(plainInput, {
        spec,
        values: rule,
        at: [Math.floor(position / SIZE[1]), position % SIZE[1]],
      }),
  };
}

const elementChoices = fc.record({
  seed: fc.nat(),
  dtype: fc.constantFrom("f32", "bf16", "f16"),
  drawnIndices: fc.array(fc.nat(COUNT - 1), { minLength: 8, maxLength: 8 }),
} as const);

describe("an explanation under a dialect", () => {
  it.each(FORMS)("has the values of $dialect, $quantizer, $format, $tile", (form) => {
    fc.assert(
      fc.property(elementChoices, ({ seed, dtype, drawnIndices }) => {
        const { values, explain } = madeBy(form, drawInput(seed, dtype));
        for (const index of drawnIndices) expect(explain(index).dequantized.value).toBe(values[index]);
      }),
      { numRuns: 3 },
    );
  });
});

it("gguf-mxfp4 explains zeros under the byte 255, to which the scale of a small amax wraps around", () => {
  const form = FORMS.find(({ dialect }) => dialect === "gguf-mxfp4") as Form;
  const smallestNormals = words(0, COUNT).fill(0x00800000);
  const { values, explain } = madeBy(form, fromCodes("f32", SIZE, smallestNormals));
  const { scale, code, dequantized } = explain(3);
  expect([scale.code, code, dequantized.value, values[3]]).toEqual([255, 0, 0, 0]);
});

const ORDER: readonly DifferingStage[] = ["format", "block", "scale", "scaled", "code", "value"];

/** The stored scale; scales of two types are equal if their values are. */
const storedScale = ({ scale }: QuantizeExplanation, otherExplanation: QuantizeExplanation): number =>
  scale.dtype === otherExplanation.scale.dtype ? scale.code : scale.value;

/** Elements of a tensor that `drawInput` draws. */
interface Elements {
  readonly seed: number;
  readonly dtype: "f32" | "bf16" | "f16";
  readonly drawnIndices: readonly number[];
}

/** Checks the difference of two forms at each element, and returns the stages at which they differ. */
function differingStages(
  firstForm: Form,
  secondForm: Form,
  { seed, dtype, drawnIndices }: Elements,
): ReadonlySet<DifferingStage | undefined> {
  const stages = new Set<DifferingStage | undefined>();
  const x = drawInput(seed, dtype);
  const [firstResult, secondResult] = [madeBy(firstForm, x), madeBy(secondForm, x)];
  for (const index of drawnIndices) {
    const [a, b] = [firstResult.explain(index), secondResult.explain(index)];
    const { stage, words: sentences } = explainDifference(a, b);
    stages.add(stage);
    expect(explainDifference(b, a).stage).toBe(stage);
    expect(sentences.length > 0).toBe(stage !== undefined);
    const saturated = sentences.flatMap((each) => each.match(/(?<=^In )[AB](?= it is beyond)/) ?? []);
    const sides = { A: a, B: b };
    const beyond = (["A", "B"] as const).filter((side) => stage !== undefined && isBeyond(sides[side]));
    expect(saturated).toEqual(beyond);
    const isSame =
      a.spec.format === b.spec.format &&
      a.code === b.code &&
      Object.is(storedScale(a, b), storedScale(b, a)) &&
      Object.is(firstResult.values[index], secondResult.values[index]);
    if (stage === undefined) expect(isSame).toBe(true);
    if (!isSame) expect(stage).toBeDefined();
    if (stage === undefined) continue;
    // the first and the last row and column of each region are named
    const regionOf = ({ block }: QuantizeExplanation): string => {
      const count = (begin: number, end: number): string => `${begin} to ${end - 1}`;
      return block
        ? `rows ${count(block.top, block.bottom)}, columns ${count(block.left, block.right)}`
        : "the whole tensor";
    };
    const sentence = `The scale of A serves ${regionOf(a)}, that of B ${regionOf(b)}.`;
    expect(sentences.includes(sentence)).toBe(regionOf(a) !== regionOf(b));
    // nothing that comes before the first stage differs
    const earlierStages = ORDER.slice(0, ORDER.indexOf(stage));
    if (earlierStages.includes("format")) expect(a.spec.format).toBe(b.spec.format);
    if (earlierStages.includes("block")) expect({ ...a.block, amax: 0 }).toEqual({ ...b.block, amax: 0 });
    if (earlierStages.includes("scale")) expect(a.scale.value).toBe(b.scale.value);
    if (earlierStages.includes("scaled") && stage !== "scaled") expect(a.scaled.value).toBe(b.scaled.value);
    if (stage === "value") expect([a.code, storedScale(a, b)]).toEqual([b.code, storedScale(b, a)]);
  }
  return stages;
}

/** Whether a scaled element is beyond the format's largest value, and becomes that. */
function isBeyond({ spec, scaled, rounding }: QuantizeExplanation): boolean {
  const { max } = factsOf(spec.format);
  return Math.abs(scaled.value) > max && Math.abs(rounding.result) === max;
}

/** A form, by its dialect, quantizer, format and tile. */
function formOf(name: string): Form {
  const form = FORMS.find(
    ({ dialect, quantizer, format, tile }) => [dialect, quantizer, format, tile].join(" ") === name,
  );
  if (!form) throw new RangeError(`no form "${name}"`);
  return form;
}

describe("a difference between two dialects", () => {
  it("is explained exactly where codes, scales or values differ, and the same whichever comes first", () => {
    const forms = fc.constantFrom(...FORMS);
    fc.assert(
      fc.property(elementChoices, forms, forms, fc.boolean(), (elements, firstForm, otherForm, isAkin) => {
        // two forms of one quantizer differ at late stages, so such pairs are drawn more often
        const formsAkin = FORMS.filter(
          (form) => form.quantizer === firstForm.quantizer && form.format === firstForm.format,
        );
        const secondForm = isAkin ? (formsAkin[elements.seed % formsAkin.length] as Form) : otherForm;
        differingStages(firstForm, secondForm, elements);
      }),
      { numRuns: draws(120, 30) },
    );
  });

  it.each<readonly [DifferingStage | undefined, string, string, Elements]>([
    [
      "format",
      "torchao-mxfp8-rceil mxfp8 e4m3 1x32",
      "te nvfp4 e2m1 16x16",
      { seed: 2, dtype: "bf16", drawnIndices: [6] },
    ],
    [
      "block",
      "te mxfp8 e5m2 32x32",
      "torchao-mxfp8-floor mxfp8 e5m2 1x32",
      { seed: 11, dtype: "bf16", drawnIndices: [2695] },
    ],
    [
      "scale",
      "torchao-fp8-row fp8-row e4m3 1xK",
      "fbgemm-fp8 fp8-row e4m3 1xK",
      { seed: 801088826, dtype: "f16", drawnIndices: [632] },
    ],
    [
      "scaled",
      "ct-mxfp8 mxfp8 e4m3 1x32",
      "torchao-mxfp8-ceil mxfp8 e4m3 1x32",
      { seed: 1336228215, dtype: "f16", drawnIndices: [2060] },
    ],
    [
      "code",
      "torchao-mxfp4-even mxfp4 e2m1 1x32",
      "deepseek-mxfp4 mxfp4 e2m1 1x32",
      { seed: 437735587, dtype: "f16", drawnIndices: [2220] },
    ],
    [
      "value",
      "modelopt-nvfp4 nvfp4 e2m1 1x16",
      "torchao-nvfp4-two-level nvfp4 e2m1 1x16",
      { seed: 655913583, dtype: "bf16", drawnIndices: [11] },
    ],
    [
      undefined,
      "deepseek-mxfp4 mxfp4 e2m1 1x32",
      "deepseek-mxfp4 mxfp4 e2m1 1x32",
      { seed: 1531161437, dtype: "f16", drawnIndices: [1104] },
    ],
  ])("begins at the stage %s between %s and %s", (stage, firstDialect, secondDialect, elements) => {
    expect([...differingStages(formOf(firstDialect), formOf(secondDialect), elements)]).toEqual([stage]);
  });

  it("is described in words: the scale by its rule, and saturation", () => {
    const x = fromCodes("f32", SIZE, new Uint32Array(new Float32Array(COUNT).fill(500).buffer));
    const form = (dialect: DialectName) => FORMS.find((row) => row.dialect === dialect) as Form;
    const [a, b] = [
      madeBy(FORMS.find(({ quantizer }) => quantizer === "mxfp8") as Form, x).explain(0),
      madeBy(form("torchao-mxfp8-floor"), x).explain(0),
    ];
    expect(explainDifference(a, b)).toEqual({
      stage: "scale",
      words: [
        "The scale of A, 2 times that of B: amax 500 gives 2 (the least power of two from amax * fl(1 / max)); in B amax 500 gives 1 (2^(floor(log2 amax) - emax)).",
        "In B it is beyond the largest value, 448, and saturates.",
      ],
    });
  });

  it.each([
    [448, []],
    [-448, []],
    [448 + 2 ** -15, ["In B it is beyond the largest value, 448, and saturates."]],
  ])("under a scale of 1, %d saturates only if it is beyond the largest value", (value, expected) => {
    const values = new Float32Array(COUNT).fill(500);
    values[0] = value;
    const x = fromCodes("f32", SIZE, new Uint32Array(values.buffer));
    const [a, b] = ["te mxfp8 e4m3 1x32", "torchao-mxfp8-floor mxfp8 e4m3 1x32"].map((name) =>
      madeBy(formOf(name), x).explain(0),
    ) as [QuantizeExplanation, QuantizeExplanation];
    expect([a.scaled.value, b.scaled.value]).toEqual([value / 2, value]);
    expect(explainDifference(a, b).words.slice(1)).toEqual(expected);
  });

  it("is the scale if only that of the tensor differs, and is said in words", () => {
    // amaxes of the tensor that are adjacent f32, in another block than the explained element
    const inputOfAmax = (bits: number): PlainTensor<"f32"> => {
      const codes = new Uint32Array(COUNT).fill(0x3f000000);
      codes[COUNT - 1] = bits;
      return fromCodes("f32", SIZE, codes);
    };
    const tensorScale = ({ tensorScale, tensorAmax }: QuantizeExplanation) =>
      (tensorScale ?? tensorAmax)?.value;
    const differingForms = FORMS.flatMap((form) => {
      const [a, b] = [0x40400000, 0x40400001].map((bits) => madeBy(form, inputOfAmax(bits)).explain(0)) as [
        QuantizeExplanation,
        QuantizeExplanation,
      ];
      if (tensorScale(a) === tensorScale(b) || a.scale.value !== b.scale.value) return [];
      const { stage, words: sentences } = explainDifference(a, b);
      expect(stage, JSON.stringify(form)).toBe("scale");
      const [sentenceOfA, sentenceOfB] = (sentences[0] as string).split("; in B ");
      expect(sentenceOfA, JSON.stringify(form)).not.toBe(
        `The scale of A: ${sentenceOfB?.replace(/\.$/, "")}`,
      );
      return [form.dialect];
    });
    expect(differingForms.length).toBeGreaterThan(2);
  });

  it("refuses explanations of two different elements, and objects that are no explanations", () => {
    const { explain } = madeBy(FORMS[0] as Form, drawInput(1, "f32"));
    expect(() => explainDifference(explain(0), explain(1))).toThrow(ArgumentError);
    expect(() => explainDifference(explain(0), explain(1))).toThrow(/explain the same element/);
    for (const invalidExplanation of [undefined, null, 1, {}, { dequantized: 1 }])
      expect(() => explainDifference(explain(0), invalidExplanation as never)).toThrow(/b is no explanation/);
  });
});
