/** Inputs are drawn among those that a subject supports: few draws are wasted, whatever it supports. */
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { valueAt } from "../../../src/options.js";
import { allows, type Supported } from "../../arbitraries/supported.js";
import { supportedInputs } from "../../laws/supported.js";
import { gemmCase } from "../../operations/gemm/arbitrary.js";
import { batchedCase } from "../../operations/gemm/arbitrary-batched.js";
import { share } from "../arbitraries/share.js";
import { derivedSeed, draws } from "../harness/draws.js";

/** The fields of a product that a subject can restrict. */
const OF_SPECS = ["quantizer", "format", "tile", "scaleRule", "elementScaling", "pow2Scales", "rht"];
const OF_SOURCES = ["kind", "format", "tile", "scaleLayout", ...OF_SPECS.map((field) => `spec.${field}`)];
const OF_OPERANDS = [
  ...OF_SOURCES.map((field) => `source.${field}`),
  ...["shape.0", "shape.1", "matrix.1"].map((field) => `codes.${field}`),
];
const OF_RESULTS = ["layout", "datapath", "alpha", "outDtype", "intoOut"];
const OF_GEMM = [
  ...["a", "b"].flatMap((name) => OF_OPERANDS.map((field) => `${name}.${field}`)),
  ...["splitK", "useSplitAccumulator", "beta", "outScale", "accumulate", "gelu", "auxDtype", "biasGradient"],
  ...["c.dtype", "bias.dtype", "geluInput.dtype"],
];
const OF_BATCHES = ["format", "size.batch", "size.rows", "size.columns", "size.depth"];
/** Optional tensors, which a subject may not support. */
const TENSORS = ["c", "bias", "geluInput"];

/** Some fields of an input, each with the input's value and sometimes the value of another input. */
function support(inputs: fc.Arbitrary<object>, fields: readonly string[]): fc.Arbitrary<Supported> {
  const coins = fc.infiniteStream(share);
  return fc.tuple(inputs, inputs, coins, share).map(([input, otherInput, tosses, chance]) => {
    const toss = (): number => tosses.next().value as number;
    const absentFields = TENSORS.filter((field) => valueAt(input, field) === undefined);
    const chosenFields = [...fields, ...absentFields].filter(() => toss() < chance);
    const valuesOf = (field: string): readonly unknown[] => {
      const values = [input, ...(toss() < 0.3 && !absentFields.includes(field) ? [otherInput] : [])];
      return [...new Set(values.map((value) => valueAt(value, field) ?? null))];
    };
    return Object.fromEntries(chosenFields.map((field) => [field, valuesOf(field)]));
  });
}

/** On average, at least one of this many draws is supported; for most subjects every draw is. */
const MAX_DRAWS = 6;

interface Aimed {
  /** Subjects that earlier versions did not aim at. */
  readonly examples: readonly Supported[];
  readonly operation: "gemm" | "batchedGemm";
  readonly fields: readonly string[];
  readonly inputs: (supported?: Supported) => fc.Arbitrary<object>;
}

const AIMED: readonly Aimed[] = [
  {
    operation: "gemm",
    examples: [
      // a kernel with narrow support
      {
        "a.source.spec.quantizer": ["nvfp4"],
        "b.source.spec.quantizer": ["nvfp4"],
        "a.codes.shape.1": [64],
        outDtype: ["bf16"],
        layout: ["TN"],
        ...{ alpha: [1], c: [null], bias: [null], gelu: [false], geluInput: [null], splitK: [1] },
      },
      // operands that none of these datapaths multiplies
      {
        "a.source.format": ["f32"],
        "b.source.format": ["tf32"],
        "b.codes.shape.1": [0, 41],
        datapath: ["hopper", "blackwell"],
      },
      { splitK: [4] },
      // a factor of the addend, and a result that cannot be accumulated
      {
        beta: [0],
        "c.dtype": ["bf16", null],
        outDtype: ["f32", null],
        "b.source.kind": ["scaled", "quantized"],
      },
    ],
    fields: [...OF_GEMM, ...OF_RESULTS],
    inputs: (supported) => gemmCase(supported && { supported }),
  },
  {
    operation: "batchedGemm",
    examples: [{ format: ["f32"], layout: ["NT"], datapath: ["exact"], "size.depth": [64] }],
    fields: [...OF_BATCHES, ...OF_RESULTS],
    inputs: (supported) => batchedCase(supported && { supported }),
  },
];

describe.each(AIMED)(
  "inputs of $operation that a subject supports",
  ({ operation, fields, inputs, examples }) => {
    it("are drawn among those, whichever they are", () => {
      fc.assert(
        fc.property(support(inputs(), fields), (supported) => {
          const DRAWN = 24;
          const samples = fc.sample(inputs(supported), { numRuns: DRAWN, seed: derivedSeed(1) });
          const numAllowed = samples.filter((input) => allows(supported, input)).length;
          expect(numAllowed).toBeGreaterThanOrEqual(DRAWN / MAX_DRAWS);
          const supportedArbitrary = supportedInputs(operation, supported)[operation] as
            | fc.Arbitrary<object>
            | undefined;
          for (const input of fc.sample(supportedArbitrary ?? inputs(), {
            numRuns: draws(5),
            seed: derivedSeed(2),
          }))
            expect(allows(supported, input)).toBe(true);
        }),
        { numRuns: draws(20), examples: examples.map((example) => [example]) },
      );
    });
  },
);
