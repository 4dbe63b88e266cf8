/** Broken kernels from the field: a run detects and names each mistake; correct kernels pass. */
import { describe, expect, it } from "vitest";
import type { QuantizeSpec } from "../../../../src/tensor/quantized.js";
import { compareWith } from "../../../laws/run.js";
import type { Answer } from "../../../operations/operation.js";
import { backendSubject, type Subject } from "../../../operations/operations.js";
import { fromCodes, wideValues } from "../../../values/plain.js";
import { draws, sampleCases } from "../../harness/draws.js";
import { useBackend } from "../../harness/suite.js";
import { BUGS, CORRECT_KERNELS } from "./mistakes.js";
import { encodeBy, encode as narrow, type Up } from "./narrow.js";
import { PRODUCT_BUGS, product, products } from "./product.js";
import { type Mistake, quantizer } from "./quantizer.js";

/** The kernel as a subject. */
function subjectOf(kernel: keyof typeof CORRECT_KERNELS, mistake: Mistake): Subject {
  const { convention, spec } = CORRECT_KERNELS[kernel];
  const run = quantizer(convention, mistake);
  return {
    quantize({ x }): Answer {
      const [rows, columns] = x.matrix;
      const { codes, scales, blocksPerRow, amax = 0 } = run(wideValues(x).slice(), columns);
      const type =
        convention.scale === "nvfp4" ? "e4m3" : convention.scale.startsWith("e8m0") ? "e8m0" : "f32";
      return {
        "rowwise.data": fromCodes(spec.format, [rows, columns], codes),
        "rowwise.scaleInv": fromCodes(type, [rows, blocksPerRow], scales),
        ...(type === "e4m3"
          ? {
              "rowwise.amax": fromCodes(
                "f32",
                [1],
                [new Uint32Array(Float32Array.of(amax).buffer)[0] as number],
              ),
            }
          : {}),
      };
    },
  };
}

/** The inputs that such a kernel supports. */
const supportedOf = (spec: QuantizeSpec) => ({
  quantize: {
    ...Object.fromEntries(Object.entries(spec).map(([field, value]) => [`spec.${field}`, [value]])),
    "usage.rowwise": [true],
    "usage.columnwise": [false],
    scaleLayout: ["logical"],
    "x.dtype": ["f32"],
    noop: [null],
  },
});

const backend = useBackend();

/** The inputs for a correct implementation. */
const RUNS = draws(100, 20);

const expectVerdict = (
  kernel: keyof typeof CORRECT_KERNELS,
  mistake: Mistake,
  spec: QuantizeSpec = CORRECT_KERNELS[kernel].spec,
  runs = 100,
) =>
  compareWith(subjectOf(kernel, mistake), backendSubject(backend()), {
    supported: supportedOf(spec),
    comparing: true,
    runs,
  });

describe("a right kernel", () => {
  it.each(sampleCases(Object.keys(CORRECT_KERNELS) as (keyof typeof CORRECT_KERNELS)[], 1))(
    "raises no alarm (%s)",
    async (kernel) => {
      const { laws } = await expectVerdict(kernel, {}, undefined, RUNS);
      expect(laws.map(({ runs, failure }) => [runs, failure?.found?.text, failure?.found?.mistakes])).toEqual(
        [[RUNS, undefined, undefined]],
      );
    },
  );
});

describe("a mistake of the field", () => {
  it.each(
    sampleCases(
      BUGS.map((bug) => [bug.name, bug] as const),
      1,
    ),
  )("is found and named: %s", async (_, bug) => {
    const { laws } = await expectVerdict(bug.kernel, bug.mistake, bug.heldTo);
    const counterexample = laws[0]?.failure?.found;
    expect(
      counterexample?.mistakes.join("\n"),
      `${counterexample?.text} ${counterexample?.observations.join("; ")}`,
    ).toMatch(bug.causePattern);
    expect(counterexample?.explanation.length).toBeGreaterThan(5);
  });
});

describe("a product", () => {
  const compareProducts = (isScaled: boolean, mistake = {}, runs = 100) =>
    compareWith({ gemm: product(mistake) }, backendSubject(backend()), {
      inputs: { gemm: products({ isScaled }) },
      comparing: true,
      runs,
    });

  it.each(sampleCases([true, false], 1))("that is right raises no alarm (scaled: %s)", async (isScaled) => {
    const { ok, laws } = await compareProducts(isScaled, {}, RUNS);
    expect(ok, laws[0]?.failure?.found?.text).toBe(true);
  });

  it.each(
    sampleCases(
      PRODUCT_BUGS.map((bug) => [bug.name, bug] as const),
      1,
    ),
  )("that is wrong is named: %s", async (_, bug) => {
    const { laws } = await compareProducts(bug.isScaled, bug.mistake);
    const counterexample = laws[0]?.failure?.found;
    expect(counterexample?.mistakes.join("\n"), counterexample?.text).toMatch(bug.causePattern);
    expect(counterexample?.explanation.length).toBeGreaterThan(3);
  });
});

describe("a cast", () => {
  const supported = {
    encode: { format: ["e4m3"], rounding: ["tiesToEven"], overflow: ["saturate"], scale: [1] },
  };
  const cast = (encode: (x: number) => number): Subject => ({
    encode: ({ x }) => ({ codes: fromCodes("u8", x.shape, Array.from(wideValues(x), encode)) }),
  });
  const tiesToAway = encodeBy((fraction) => fraction >= 0.5);
  const even: Up = (fraction, isOdd) => fraction > 0.5 || (fraction === 0.5 && isOdd);
  const CASTS = [
    ["ties away from zero", (x: number) => tiesToAway(x, "e4m3"), /half away/],
    [
      "NaN becomes zero",
      (x: number) => (Number.isNaN(x) ? 0 : narrow(x, "e4m3")),
      /NaN (becomes zero|inputs count as zero)/,
    ],
    ["overflow becomes NaN", (x: number) => encodeBy(even, 0x7f)(x, "e4m3"), /saturation is missing/],
    [
      "zeros without a sign",
      (x: number) => (narrow(x, "e4m3") === 0x80 ? 0 : narrow(x, "e4m3")),
      /\+0 for -0/,
    ],
  ] as const;

  it("that is right raises no alarm", async () => {
    const { ok, laws } = await compareWith(
      cast((x) => narrow(x, "e4m3")),
      backendSubject(backend()),
      { supported, comparing: true, runs: RUNS },
    );
    expect(ok, laws[0]?.failure?.found?.text).toBe(true);
  });

  it.each(sampleCases(CASTS, 1))("that is wrong is named: %s", async (_, encode, causePattern) => {
    const { laws } = await compareWith(cast(encode), backendSubject(backend()), {
      supported,
      comparing: true,
    });
    const counterexample = laws[0]?.failure?.found;
    expect(counterexample?.mistakes.join("\n"), counterexample?.text).toMatch(causePattern);
    expect(counterexample?.explanation.length).toBeGreaterThan(1);
  });
});
