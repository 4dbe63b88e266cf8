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
function answerOf(drawnCase: QuantizeCase) {
  using _scope = new Scope();
  const x = upload(backend(), drawnCase.x);
  return runQuantizer(backend(), drawnCase, (quantizer) => quantizer.quantize(x));
}

/** Compares the explanations of elements with the reference's answer. */
function compare(drawnCase: QuantizeCase, drawnIndices: readonly number[]): void {
  const { spec, x, random, scale, scaleLayout } = drawnCase;
  const answer = answerOf(drawnCase);
  const [rows, columns] = asMatrix(x.shape);
  if (rows * columns === 0) return;
  for (const direction of DIRECTIONS.filter((name) => drawnCase.usage[name])) {
    const data = answer[`${direction}.data`] as PlainTensor;
    const scales = answer[`${direction}.scaleInv`] as PlainTensor;
    const geometry = copyGeometry(spec, [rows, columns], direction, scaleLayout);
    const logical = copyGeometry(spec, [rows, columns], direction, "logical");
    const amaxes = answer[`${direction}.amax`]?.codes;
    const bits = direction === "rowwise" ? drawnCase.randomBits : drawnCase.randomBitsColumnwise;
    const randomBits = bits?.data as Uint32Array | undefined;
    const explainer = new QuantizeExplainer(x, spec, {
      direction,
      random,
      randomBits,
      scale: Math.fround(scale),
    });
    for (const drawnIndex of drawnIndices) {
      const [row, column] = [Math.floor(drawnIndex / columns) % rows, drawnIndex % columns];
      const explanation = explainer.explain(row, column);
      const [codeRow, codeColumn] = codePlace(geometry, row, column);
      expect(explanation.codeAt).toEqual([codeRow, codeColumn]);
      expect(explanation.code).toBe(data.codes[codeRow * (data.shape[1] as number) + codeColumn]);
      expect(explanation.rounding.result).toEqual(valueOfCode(spec.format, explanation.code));
      const linePosition = linePlace(geometry, row, column);
      const amax = amaxes?.[spec.rowScaled ? linePosition.line : 0];
      const storedScale = scales.codes[scaleIndex(spec, geometry, linePosition)] as number;
      // the payload of a NaN f32 scale is undefined
      if (explanation.scale.dtype === "f32" && Number.isNaN(explanation.scale.value))
        expect(storedScale & 0x7fffffff).toBeGreaterThan(0x7f800000);
      else expect(explanation.scale.code).toBe(storedScale);
      expect(explanation.scale.index).toBe(scaleIndex(spec, logical, linePosition));
      if (amax !== undefined)
        expect(bitsOf((explanation.tensorScale ?? explanation.tensorAmax)?.value ?? Number.NaN)).toBe(amax);
      const copy = {
        codes: Uint8Array.of(explanation.code),
        shape: [1, 1] as const,
        scale: [explanation.scale.code],
        scaleShape: [1, 1],
        ...(amax === undefined ? {} : { amax, amaxes: [amax] }),
      };
      // with the transform, the value of one element is the value of the transformed element
      const values = dequantize(copy, direction, oracleSpec({ ...spec, rht: false }));
      expect(bitsOf(explanation.dequantized.value)).toBe(
        bitsOf(new Float32Array(values.buffer)[0] as number),
      );
    }
  }
}

/** Compares the inverse transform of 16 explained values of a column with the result of `dequantize`. */
function compareColumn(drawnCase: QuantizeCase, drawnIndex: number): void {
  using _scope = new Scope();
  const { spec, x, random } = drawnCase;
  const [rows, columns] = asMatrix(x.shape);
  if (rows * columns === 0) return;
  const [row, column] = [Math.floor(drawnIndex / columns) % rows, drawnIndex % columns];
  const firstRow = row - (row % TRANSFORMED);
  const randomBits = drawnCase.randomBitsColumnwise?.data as Uint32Array | undefined;
  const explainer = new QuantizeExplainer(x, spec, { direction: "columnwise", random, randomBits });
  const explainedValues = Array.from(
    { length: TRANSFORMED },
    (_, i) => explainer.explain(firstRow + i, column).dequantized.value,
  );
  runQuantizer(backend(), drawnCase, (quantizer) => {
    const quantizedTensor = quantizer.quantize(upload(backend(), x));
    const values = quantizedTensor.dequantize("f32").dataSync();
    const restoredValues = inverseRht16(explainedValues, spec.rhtSigns !== 0);
    for (let i = 0; i < TRANSFORMED && firstRow + i < rows; i++)
      expect(restoredValues[i]).toBe(values[(firstRow + i) * columns + column]);
    return quantizedTensor;
  });
}

const indexDraws = fc.array(fc.nat(1 << 20), { minLength: 6, maxLength: 6 });

describe("explanations of quantizations have the code, the scale and the value of the reference", () => {
  it.each(QUANTIZERS)("%s", (name) => {
    fc.assert(
      fc.property(quantizeCase([name]), indexDraws, (drawnCase, drawnIndices) =>
        compare({ ...drawnCase, noop: undefined }, drawnIndices),
      ),
      { numRuns: RUNS },
    );
  });

  it("and of the transform, whose inverse makes of them the values of the columnwise copy", () => {
    const transformedSpecs = specsOf("nvfp4").filter(({ rht }) => rht);
    const cases = quantizeCaseBy(fc.constantFrom(...transformedSpecs)).map((drawnCase) => ({
      ...drawnCase,
      usage: COLUMNWISE,
      randomBits: undefined,
    }));
    fc.assert(fc.property(cases, fc.nat(1 << 20), compareColumn), { numRuns: draws(60) });
  });
});
