/**
 * The dialects of the OCP specification return the values that microxcaling, its authors' emulation, returns with ties to even
 * (its option round='even'; its default rounds ties away from zero), in every bit. It returns no codes. It differs in three ways:
 *
 * - Its exponent is the floor of a logarithm rounded to f32, which is too large just below powers of two. Blocks with such an
 *   amax are not compared, nor is bf16, which has many of them.
 * - It loses the sign of -0, and multiplies integer magnitudes by the sign, so that a small negative number becomes -0, which
 *   two's complement lacks. The test sets the sign before it compares.
 * - A NaN or an infinity makes its whole block NaN.
 */
import { describe, expect, it } from "vitest";
import { dequantizeAs } from "../../../../src/dialects/dequantize.js";
import { quantizerOf } from "../../../../src/dialects/quantizer-of.js";
import type { DialectName } from "../../../../src/dialects/table.js";
import { isIntegral } from "../../../../src/formats/derive.js";
import { SCALAR_FORMATS, type ScalarFormat } from "../../../../src/formats/scalar.js";
import { tensor } from "../../../../src/ops/create.js";
import { Scope } from "../../../../src/tensor/scope.js";
import { sampleCases } from "../../harness/draws.js";
import { useBackend } from "../../harness/suite.js";
import { drawValues } from "../../witness/dialects/draws.js";
import { difference, type RecordedCase, recordedPackages } from "../../witness/dialects/recorded.js";

const BLOCK = 32;
const NOT_FINITE = ["nan", "infinity"];
const backend = useBackend({ threads: 1 });

/** Our name and format for each recording. */
const OCP: Readonly<Record<string, readonly [DialectName, ScalarFormat]>> = {
  "ocp-mxfp8-even": ["ocp-mxfp8", "e4m3"],
  "ocp-mxfp8-e5m2-even": ["ocp-mxfp8", "e5m2"],
  "ocp-mxfp6-e2m3-even": ["ocp-mxfp6", "e2m3"],
  "ocp-mxfp6-e3m2-even": ["ocp-mxfp6", "e3m2"],
  "ocp-mxfp4-even": ["ocp-mxfp4", "e2m1"],
  "ocp-mxint8-even": ["ocp-mxint8", "s2f6"],
};

const recordedDialects = recordedPackages().flatMap((library) =>
  library.dialects.map((row) => ({ library, ...row })),
);

/** Whether the logarithm of an amax, rounded to f32, has another floor than the exact one. */
function isRoundedUp(amax: number): boolean {
  if (amax === 0) return false;
  const exponent = Math.floor(Math.fround(Math.log2(amax)));
  return 2 ** exponent > amax;
}

const ceiling = (size: number): number => Math.ceil(size / BLOCK) * BLOCK;

/** The values of a matrix under a dialect, after padding with zeros to whole blocks in both directions. */
function valuesOf(x: Float32Array, [rows, columns]: RecordedCase["shape"], name: string): Float32Array {
  using _scope = new Scope();
  const [dialect, format] = OCP[name] as (typeof OCP)[string];
  const paddedInput = new Float32Array(ceiling(rows) * ceiling(columns));
  for (let row = 0; row < rows; row++)
    paddedInput.set(x.subarray(row * columns, (row + 1) * columns), row * ceiling(columns));
  const quantizedTensor = quantizerOf({ dialect, format }).quantize(
    tensor(backend(), paddedInput, [ceiling(rows), ceiling(columns)]),
  );
  const values = dequantizeAs(quantizedTensor, { dialect }).dataSync() as Float32Array;
  const isInteger = isIntegral(SCALAR_FORMATS[format].specials);
  return x.map((inputValue, i) => {
    const value = values[Math.floor(i / columns) * ceiling(columns) + (i % columns)] as number;
    if (value !== 0 || (inputValue !== 0 && !isInteger)) return value;
    return inputValue < 0 ? -0 : 0;
  });
}

describe.each(Object.keys(OCP).map((name, i) => [name, i] as const))("%s", (name, i) => {
  const row = recordedDialects.find(({ dialect }) => dialect === name);
  const cases =
    row?.cases.filter((testCase) => testCase.dtype === "f32" && !NOT_FINITE.includes(testCase.case)) ?? [];

  it("is recorded for ten kinds of finite f32 inputs", () => expect(cases).toHaveLength(10));

  it.each(sampleCases(cases, 3, i).map((row) => [row.case, row] as const))("%s", (_, recordedCase) => {
    const [, columns] = recordedCase.shape;
    const bits = drawValues(recordedCase.case, recordedCase.dtype, recordedCase.shape) as Uint32Array;
    const x = new Float32Array(bits.slice().buffer);
    const amaxOf = (begin: number, end: number): number =>
      x.subarray(begin, end).reduce((max, element) => Math.max(max, Math.abs(element)), 0);
    const isUndecided = (line: number): boolean => {
      const starts = Array.from({ length: ceiling(columns) / BLOCK }, (_, i) => line * columns + i * BLOCK);
      return starts.some((begin) =>
        isRoundedUp(amaxOf(begin, Math.min(begin + BLOCK, (line + 1) * columns))),
      );
    };
    const values = valuesOf(x, recordedCase.shape, name);
    const result = recordedCase.results?.values;
    if (!row || !result) throw new Error("no values were recorded");
    const bytes = new Uint8Array(values.buffer);
    expect(difference(row.library, result, bytes, isUndecided)).toBe(undefined);
  });
});
