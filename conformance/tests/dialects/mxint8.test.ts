/**
 * MXINT8 gives the values that microxcaling gives with ties to even (its option round='even'), in every bit. It gives no codes.
 * It rounds magnitudes and multiplies by the sign, so that a negative number that becomes zero is minus zero, which two's
 * complement has not: there the sign is set before the comparison. Its exponent is the floor of a logarithm that is rounded
 * first, so that the sweeps next to powers of two are left out.
 */
import { expect, it } from "vitest";
import { tensor } from "../../../src/ops/create.js";
import { dequantize } from "../../../src/ops/quantize/dequantize.js";
import { MXINT8Quantizer } from "../../../src/quantizers/mx.js";
import { scoped, useBackend } from "../harness/suite.js";
import { drawn } from "../witness/dialects/draws.js";
import { difference, recordedPackages } from "../witness/dialects/recorded.js";

const CASES = ["normal", "outliers", "zeros", "zero"];
const backend = useBackend({ threads: 1 });
const recorded = recordedPackages().flatMap((from) => from.dialects.map((row) => ({ from, ...row })));
const even = recorded.find(({ dialect }) => dialect === "ocp-mxint8-even");

it("microxcaling was asked for MXINT8 with ties to even", () => {
  expect(even?.cases.filter((each) => CASES.includes(each.case) && each.dtype === "f32")).toHaveLength(4);
});

for (const given of even?.cases ?? []) {
  if (!CASES.includes(given.case) || given.dtype !== "f32") continue;
  scoped(`the values of ${given.case}`, () => {
    const bits = drawn(given.case, given.dtype, given.shape) as Uint32Array;
    const source = new Float32Array(bits.slice().buffer);
    const x = tensor(backend(), source, given.shape);
    const values = Float32Array.from(
      dequantize(new MXINT8Quantizer().quantize(x)).dataSync() as Float32Array,
      (value, i) => (value === 0 && (source[i] as number) < 0 ? -0 : value),
    );
    const result = given.results?.values;
    if (!even || !result) throw new Error("no values were recorded");
    expect(
      difference(even.from, result, new Uint8Array(values.buffer, values.byteOffset, values.byteLength)),
    ).toBe(undefined);
  });
}
