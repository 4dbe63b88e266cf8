/** explainSpecialFunction: its result equals the operation's, and its terms add up to it. */
import fc from "fast-check";
import { expect, it } from "vitest";
import { explainSpecialFunction } from "../../../src/explain/special-function.js";
import { specialFunctionText } from "../../../src/explain/text.js";
import { SPECIAL_FUNCTIONS } from "../../../src/formats/special-functions.js";
import { fromBytes } from "../../../src/ops/create.js";
import { specialFunction } from "../../../src/ops/elementwise/special-function.js";
import { numberBetween } from "../arbitraries/share.js";
import { draws } from "../harness/draws.js";
import {
  bitsToValue,
  SPECIAL_INPUTS,
  SPECIAL_RESULTS,
  UNARY_FUNCTION_NAMES,
  valueToBits,
} from "../harness/special-functions.js";
import { testInScope, useBackend } from "../harness/suite.js";

const backend = useBackend();

it("explains the recorded results of special inputs", () => {
  for (const [name, results] of SPECIAL_RESULTS)
    for (const [i, input] of SPECIAL_INPUTS.entries())
      expect(explainSpecialFunction(bitsToValue("f32", input), { function: name }).bits, name).toBe(
        results[i],
      );
});

testInScope("explains what the operation returns, for drawn inputs and those next to powers of two", () => {
  for (const name of UNARY_FUNCTION_NAMES) {
    const { dtype } = SPECIAL_FUNCTIONS[name];
    const [unit, limit] = dtype === "f32" ? [2 ** 23, 2 ** 32] : [2 ** 7, 2 ** 16];
    const edges = Array.from({ length: limit / unit }, (_, i) => [
      i * unit,
      i * unit + 1,
      (i + 1) * unit - 1,
    ]);
    const drawnInputs = fc.sample(fc.integer({ min: 0, max: limit - 1 }), draws(2000));
    const inputs = [...edges.flat(), ...drawnInputs];
    const patterns = dtype === "f32" ? Uint32Array.from(inputs) : Uint16Array.from(inputs);
    const x = fromBytes(backend(), new Uint8Array(patterns.buffer), [inputs.length], dtype);
    const out = specialFunction(x, { function: name }).dataSync();
    const codes = dtype === "f32" ? new Uint32Array(out.buffer, out.byteOffset, out.length) : out;
    for (const [i, input] of inputs.entries()) {
      const { bits, steps } = explainSpecialFunction(bitsToValue(dtype, input), { function: name });
      if (bits !== codes[i]) expect({ name, input, bits }).toEqual({ name, input, bits: codes[i] });
      const valueOfStep = (step: string) =>
        steps.find((explainedStep) => explainedStep.name === step)?.value ?? Number.NaN;
      const bias = Number(/\d+$/.exec(steps.find((step) => step.name === "T")?.formula ?? "")?.[0]);
      if (bias >= 0 && valueOfStep("t0") + valueOfStep("t1") + valueOfStep("t2") + bias !== valueOfStep("T"))
        expect.fail(`${name} of ${input}`);
    }
  }
});

testInScope("explains what the operation returns for two arguments, and requires the second", () => {
  const pattern = fc.integer({ min: 0, max: 2 ** 32 - 1 });
  // most powers of such numbers are finite
  const moderate = fc
    .oneof(numberBetween(-64, 64), fc.float({ min: -64, max: 64, noNaN: true }))
    .map((x) => valueToBits("f32", x));
  const wholeNumber = fc.integer({ min: -20, max: 20 }).map((x) => valueToBits("f32", x));
  const pairs = fc.sample(
    fc.tuple(fc.oneof(pattern, moderate), fc.oneof(pattern, moderate, wholeNumber)),
    draws(2000),
  );
  const [x, y] = [0, 1].map((i) => Uint32Array.from(pairs, (pair) => pair[i] as number)) as [
    Uint32Array<ArrayBuffer>,
    Uint32Array<ArrayBuffer>,
  ];
  const upload = (patterns: Uint32Array<ArrayBuffer>) =>
    fromBytes(backend(), new Uint8Array(patterns.buffer), [patterns.length], "f32");
  for (const name of ["divide", "divide.fast", "powf", "powf.fast"] as const) {
    const out = specialFunction(upload(x), { function: name, y: upload(y) }).dataSync();
    const codes = new Uint32Array(out.buffer, out.byteOffset, out.length);
    for (const [i, pair] of pairs.entries()) {
      const [firstValue = 0, secondValue = 0] = pair.map((bits) => bitsToValue("f32", bits));
      const { bits } = explainSpecialFunction(firstValue, { function: name, y: secondValue });
      if (bits !== codes[i]) expect({ name, pair, bits }).toEqual({ name, pair, bits: codes[i] });
    }
    expect(() => explainSpecialFunction(1, { function: name })).toThrow("two arguments");
  }
  expect(() => explainSpecialFunction(1, { function: "expf", y: 1 })).toThrow("one argument");
});

it("has each step as a line, and the bits last", () => {
  const explanation = explainSpecialFunction(1.5, { function: "rsqrt.approx.ftz.f32" });
  const lines = specialFunctionText(explanation);
  expect(lines).toHaveLength(explanation.steps.length + 3);
  expect(lines.at(-1)).toContain(`bits 0x${explanation.bits.toString(16)}`);
});
