/** Explanations of quantizations have the reference's code, scale and value, for every quantizer and option. */
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { TRANSFORMED } from "../../../src/explain/hadamard.js";
import { QuantizeExplainer } from "../../../src/explain/quantize.js";
import { valueOfCode } from "../../../src/formats/derive.js";
import { copyGeometry } from "../../../src/tensor/geometry.js";
import { codePlace, linePlace, scaleIndex } from "../../../src/tensor/places.js";
import { COLUMNWISE, DIRECTIONS } from "../../../src/tensor/quantized.js";
import { Scope } from "../../../src/tensor/scope.js";
import { asMatrix } from "../../../src/tensor/shape.js";
import { QUANTIZERS, specsOf } from "../../arbitraries/specs.js";
import {
  type QuantizeCase,
  quantizeCase,
  quantizeCaseBy,
  runQuantizer,
} from "../../operations/quantize/quantize.js";
import { oracleSpec } from "../../operations/quantize/quantized.js";
import { dequantize } from "../../oracle/quantize/dequantize.js";
import { inverseRht16 } from "../../oracle/quantize/hadamard.js";
import { type PlainTensor, upload } from "../../values/plain.js";
import { bitsOf } from "../../values/values.js";
import { draws } from "../harness/draws.js";
import { useBackend } from "../harness/suite.js";

const backend = useBackend();
const RUNS = draws(400);

/** The reference's codes and scales. */
function answerOf(drawn: QuantizeCase) {
  using _scope = new Scope();
  const x = upload(backend(), drawn.x);
  return runQuantizer(backend(), drawn, (quantizer) => quantizer.quantize(x));
}

/** Compares the explanations of elements with the reference's answer. */
function compare(drawn: QuantizeCase, picks: readonly number[]): void {
  const { spec, x, random, scale, scaleLayout } = drawn;
  const answer = answerOf(drawn);
  const [rows, columns] = asMatrix(x.shape);
  if (rows * columns === 0) return;
  for (const direction of DIRECTIONS.filter((each) => drawn.usage[each])) {
    const data = answer[`${direction}.data`] as PlainTensor;
    const scales = answer[`${direction}.scaleInv`] as PlainTensor;
    const geometry = copyGeometry(spec, [rows, columns], direction, scaleLayout);
    const logical = copyGeometry(spec, [rows, columns], direction, "logical");
    const amaxes = answer[`${direction}.amax`]?.codes;
    const bits = direction === "rowwise" ? drawn.randomBits : drawn.randomBitsColumnwise;
    const randomBits = bits?.data as Uint32Array | undefined;
    const explainer = new QuantizeExplainer(x, spec, {
      direction,
      random,
      randomBits,
      scale: Math.fround(scale),
    });
    for (const pick of picks) {
      const [row, column] = [Math.floor(pick / columns) % rows, pick % columns];
      const explained = explainer.explain(row, column);
      const [r, c] = codePlace(geometry, row, column);
      expect(explained.codeAt).toEqual([r, c]);
      expect(explained.code).toBe(data.codes[r * (data.shape[1] as number) + c]);
      expect(explained.rounding.result).toEqual(valueOfCode(spec.format, explained.code));
      const at = linePlace(geometry, row, column);
      const amax = amaxes?.[spec.rowScaled ? at.line : 0];
      const stored = scales.codes[scaleIndex(spec, geometry, at)] as number;
      // the payload of a NaN f32 scale is undefined
      if (explained.scale.dtype === "f32" && Number.isNaN(explained.scale.value))
        expect(stored & 0x7fffffff).toBeGreaterThan(0x7f800000);
      else expect(explained.scale.code).toBe(stored);
      expect(explained.scale.index).toBe(scaleIndex(spec, logical, at));
      if (amax !== undefined)
        expect(bitsOf((explained.tensorScale ?? explained.tensorAmax)?.value ?? Number.NaN)).toBe(amax);
      const copy = {
        codes: Uint8Array.of(explained.code),
        shape: [1, 1] as const,
        scale: [explained.scale.code],
        scaleShape: [1, 1],
        ...(amax === undefined ? {} : { amax, amaxes: [amax] }),
      };
      // with the transform, the value of one element is that of the transformed element
      const values = dequantize(copy, direction, oracleSpec({ ...spec, rht: false }));
      expect(bitsOf(explained.dequantized.value)).toBe(bitsOf(new Float32Array(values.buffer)[0] as number));
    }
  }
}

/** Compares the inverse transform of 16 explained values of a column with the result of `dequantize`. */
function compareColumn(drawn: QuantizeCase, pick: number): void {
  using _scope = new Scope();
  const { spec, x, random } = drawn;
  const [rows, columns] = asMatrix(x.shape);
  if (rows * columns === 0) return;
  const [row, column] = [Math.floor(pick / columns) % rows, pick % columns];
  const first = row - (row % TRANSFORMED);
  const randomBits = drawn.randomBitsColumnwise?.data as Uint32Array | undefined;
  const explainer = new QuantizeExplainer(x, spec, { direction: "columnwise", random, randomBits });
  const explained = Array.from(
    { length: TRANSFORMED },
    (_, i) => explainer.explain(first + i, column).dequantized.value,
  );
  runQuantizer(backend(), drawn, (quantizer) => {
    const quantized = quantizer.quantize(upload(backend(), x));
    const values = quantized.dequantize("f32").dataSync();
    const restored = inverseRht16(explained, spec.rhtSigns !== 0);
    for (let i = 0; i < TRANSFORMED && first + i < rows; i++)
      expect(restored[i]).toBe(values[(first + i) * columns + column]);
    return quantized;
  });
}

const picks = fc.array(fc.nat(1 << 20), { minLength: 6, maxLength: 6 });

describe("explanations of quantizations have the code, the scale and the value of the reference", () => {
  it.each(QUANTIZERS)("%s", (name) => {
    fc.assert(
      fc.property(quantizeCase([name]), picks, (drawn, elements) =>
        compare({ ...drawn, noop: undefined }, elements),
      ),
      { numRuns: RUNS },
    );
  });

  it("and of the transform, whose inverse makes of them the values of the columnwise copy", () => {
    const transformedSpecs = specsOf("nvfp4").filter(({ rht }) => rht);
    const cases = quantizeCaseBy(fc.constantFrom(...transformedSpecs)).map((drawn) => ({
      ...drawn,
      usage: COLUMNWISE,
      randomBits: undefined,
    }));
    fc.assert(fc.property(cases, fc.nat(1 << 20), compareColumn), { numRuns: draws(60) });
  });
});
