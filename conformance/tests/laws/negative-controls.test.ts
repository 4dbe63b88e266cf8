/** Deliberately wrong implementations. A named law rejects each, and accepts the correct implementation. */
import fc from "fast-check";
import { beforeAll, describe, expect, it } from "vitest";
import type { RoundingName } from "../../../src/backends/ops.js";
import type { DatapathName, DotAdd } from "../../../src/formats/datapath.js";
import { SCALAR_FORMATS } from "../../../src/formats/scalar.js";
import { lawNamed } from "../../laws/laws.js";
import { stored } from "../../operations/cast/encode.js";
import { operands } from "../../operations/gemm/arbitrary-codes.js";
import {
  type Codes,
  type KernelInstance,
  kernels,
  runKernel,
  runOracle,
} from "../../operations/gemm/kernel.js";
import type { Answer } from "../../operations/operation.js";
import { type Cases, ORACLE, type Subject } from "../../operations/operations.js";
import { random16 } from "../../oracle/core/philox.js";
import { div, mul } from "../../oracle/core/rational.js";
import { encode as encodeScalar } from "../../oracle/core/scalar.js";
import { amaxOf, E8M0_RULES, e8m0Reciprocal, largest } from "../../oracle/core/scale.js";
import { fromCodes, wideValues } from "../../values/plain.js";
import { layoutOf, storageBitsOf } from "../../values/values.js";
import { derivedSeed, draws } from "../harness/draws.js";
import { encodeBits } from "../harness/reference-scalar.js";

const CHECK = { runs: 400, seed: derivedSeed(21) };

/** Checks that the law of this name fails for `brokenSubject` with a counterexample and holds for `correctSubject`. */
async function expectCaught(
  name: string,
  brokenSubject: Subject,
  correctSubject: Subject = ORACLE,
): Promise<void> {
  const { failure } = await lawNamed(name).check(brokenSubject, ORACLE, CHECK);
  expect(failure?.counterexample, `"${name}" holds for a broken subject`).toBeTruthy();
  const runs = draws(CHECK.runs);
  expect((await lawNamed(name).check(correctSubject, ORACLE, { ...CHECK, runs })).failure).toBeUndefined();
}

/** An encoder that uses `actual` in place of `rounding`. */
function encoderWithRounding(rounding: RoundingName, actual: RoundingName): Subject {
  return {
    encode: (input) => ORACLE.encode(input.rounding === rounding ? { ...input, rounding: actual } : input),
  };
}

/** An encoder whose zeros have no sign. */
const unsignedZeros: Subject = {
  async encode(input) {
    const { codes } = await ORACLE.encode(input);
    const layout = layoutOf(input.format);
    const minusZero = 2 ** (layout.exponentBits + layout.mantissaBits);
    if (!codes || !layout.signed || layout.specials === "fnuz") return { ...(codes ? { codes } : {}) };
    const withoutMinusZero = (code: number): number => (code === minusZero ? 0 : code);
    const unsignedCodes =
      storageBitsOf(input.format) === 4
        ? Array.from(codes.codes, (byte) => withoutMinusZero(byte & 15) + 16 * withoutMinusZero(byte >> 4))
        : Array.from(codes.codes, withoutMinusZero);
    return { codes: fromCodes(codes.dtype, codes.shape, unsignedCodes) };
  },
};

type Element = "e4m3" | "e5m2";

/** The oracle with a rowwise 1x32 MXFP8 quantizer whose scale codes come from `scaleOf`. */
function scaledBy(scaleOf: (amax: number, format: Element) => number): Subject {
  const rowwise = ({ x, spec }: Cases["quantize"]): Answer => {
    const format = spec.format as Element;
    const values = wideValues(x);
    const [rows, columns] = x.matrix;
    const scales = Array.from({ length: values.length / 32 }, (_, block) =>
      scaleOf(amaxOf(values.subarray(32 * block, 32 * block + 32)), format),
    );
    const scaledValues = values.map(
      (value, i) => value * e8m0Reciprocal(scales[Math.floor(i / 32)] as number),
    );
    const bits = new Uint32Array(scaledValues.buffer, scaledValues.byteOffset, scaledValues.length);
    const codes = encodeBits(bits, SCALAR_FORMATS[format], "tiesToEven", "saturate");
    return {
      "rowwise.data": fromCodes(format, [rows, columns], codes),
      "rowwise.scaleInv": fromCodes("e8m0", [rows, columns / 32], scales),
    };
  };
  return {
    quantize: (input) =>
      input.spec.quantizer === "mxfp8" &&
      input.spec.tile === "1x32" &&
      input.scaleLayout === "logical" &&
      !input.usage.columnwise
        ? rowwise(input)
        : ORACLE.quantize(input),
  };
}

/** amax / max rounded up by an f32 logarithm, which treats a value slightly above a power of two as that power. */
function log2fScale(amax: number, format: Element): number {
  const quotient = mul(amax, div(1, largest(SCALAR_FORMATS[format])));
  if (!Number.isFinite(quotient)) return 254;
  return Math.min(Math.max(Math.ceil(Math.fround(Math.log2(quotient))) + 127, 0), 254);
}

describe("casts", () => {
  it("catches ties away from zero in place of ties to even", () =>
    expectCaught("a tie goes to the even code", encoderWithRounding("tiesToEven", "tiesToAway")));

  it("catches ties to even in place of ties away from zero", () =>
    expectCaught("a tie goes away from zero", encoderWithRounding("tiesToAway", "tiesToEven")));

  it("catches truncation in place of rounding", () =>
    expectCaught(
      "no value is nearer than the one encode gives",
      encoderWithRounding("tiesToEven", "towardZero"),
    ));

  it("catches truncation in place of rounding up", () =>
    expectCaught(
      "encode goes no further than a neighbouring value, on the side the rounding says",
      encoderWithRounding("towardPositive", "towardZero"),
    ));

  it("catches random words of half the bits", () => {
    const coarse: Subject = {
      async encode({ rounding, ...input }) {
        if (rounding !== "stochastic") return ORACLE.encode({ rounding, ...input });
        const layout = layoutOf(input.format);
        const bits = Array.from(input.x.codes, (pattern, i) => {
          const word = random16(input.random.seed, input.random.offset, 0, BigInt(i));
          return encodeScalar(pattern, layout, "stochastic", input.overflow, word & 0xff00);
        });
        return { codes: stored(bits, input.format, input.x.shape) };
      },
    };
    return expectCaught(
      "stochastic rounding goes up exactly where its word is below the dropped fraction",
      coarse,
    );
  });

  it("catches +0 for -0", () =>
    expectCaught("a zero keeps its sign, and so does what underflows", unsignedZeros));
});

describe("block scales", () => {
  const LEAST = "an mxfp8 scale is the least power of two under which the block fits";
  const correctScales = scaledBy((amax, format) => E8M0_RULES.e8m0Up(amax, SCALAR_FORMATS[format]).stored);

  it("catches a floored exponent", () =>
    expectCaught(
      LEAST,
      scaledBy((amax, format) => E8M0_RULES.e8m0Floor(amax, SCALAR_FORMATS[format]).stored),
      correctScales,
    ));

  it("catches an exponent computed from the f32 logarithm", () =>
    expectCaught(LEAST, scaledBy(log2fScale), correctScales));
});

describe("the Hadamard transform", () => {
  it("catches signs applied after the transform in place of before", () => {
    const signsLast: Subject = {
      async hadamard({ x, signs }) {
        const { out } = await ORACLE.hadamard({ x, signs: 0 });
        if (!out) throw new Error("the oracle gives out");
        const flippedCodes = Array.from(out.codes, (code, i) => code ^ (((signs >> (i % 16)) & 1) << 15));
        return { out: fromCodes("bf16", out.shape, flippedCodes) };
      },
    };
    return expectCaught("a unit vector transforms into its row of diag(d) H / 4", signsLast);
  });
});

describe("the datapath's alignment", () => {
  let instance: KernelInstance;
  beforeAll(async () => {
    instance = await kernels();
  });

  /** Checks the law "the scalar step is datapath.md §1" for one row; returns the failure, if any. */
  const stepLaw = (
    datapath: DatapathName,
    formats: readonly Codes["format"][],
    brokenStep: Partial<DotAdd>,
  ): { readonly failed: boolean } =>
    fc.check(
      fc.property(operands(formats, { lines: 3, depth: 100 }), ([x, w, depth]) => {
        const task = { x, w, depth, datapath, kernel: "scalar" } as const;
        expect(runKernel(instance, { ...task, broken: brokenStep })).toEqual(runOracle(task));
      }),
      // 26 bits in place of 25 change few sums
      { numRuns: draws(120, 60), seed: derivedSeed(22) },
    );

  for (const [datapath, formats, bits] of [
    ["hopper-fp8", ["e4m3", "e5m2"], [12, 14]],
    ["hopper-half", ["bf16"], [24, 26]],
    ["ada-half", ["f16"], [23, 25]],
  ] as const) {
    for (const alignBits of bits) {
      it(`${datapath} aligned to ${alignBits} bits is caught by "the scalar step is datapath.md §1"`, () => {
        expect(stepLaw(datapath, formats, {}).failed).toBe(false);
        expect(stepLaw(datapath, formats, { alignBits }).failed).toBe(true);
      });
    }
  }
});
