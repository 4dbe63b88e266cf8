/** The further inputs of a quantization, which a subclass of `Quantizer` supplies, are checked in each of its methods. */
import { describe, expect } from "vitest";
import { ArgumentError, DTypeError, ShapeError } from "../../../../src/errors.js";
import { empty, zeros } from "../../../../src/ops/create.js";
import type { QuantizeInputs } from "../../../../src/ops/quantize/quantize.js";
import { Float8BlockQuantizer } from "../../../../src/quantizers/float8-block.js";
import type { Quantizer } from "../../../../src/quantizers/quantizer.js";
import type { QuantizeSpec } from "../../../../src/tensor/quantized.js";
import { makeSpec } from "../../../../src/tensor/spec.js";
import type { Tensor } from "../../../../src/tensor/tensor.js";
import { SpecQuantizer } from "../../../operations/quantize/quantized.js";
import { refusals, untyped } from "../../harness/refusals.js";
import { testInScope, useBackend } from "../../harness/suite.js";

const backend = useBackend();
const otherBackend = useBackend();

const x = (tensorBackend = backend()): Tensor => zeros(tensorBackend, "bf16", [16, 32]);
/** A quantizer of both copies. */
const quantizerWith = (spec: QuantizeSpec, inputs: QuantizeInputs): Quantizer =>
  new SpecQuantizer(spec, { rowwise: true, columnwise: true, scaleLayout: "logical" }, inputs);

type Method = (quantizer: Quantizer) => unknown;

/** The methods that quantize, by the name of the operation in messages. */
const METHODS: Readonly<Record<string, Method>> = {
  quantize: (quantizer) => quantizer.quantize(x()),
  activationQuantize: (quantizer) => quantizer.activationQuantize(x(), { kind: "relu" }),
  normQuantize: (quantizer) => quantizer.normQuantize(x(), { gamma: zeros(backend(), "bf16", [32]) }),
  biasGradQuantize: (quantizer) => quantizer.biasGradQuantize(x()),
};

const SCALARS = ["scale", "amaxRecord", "amax", "amaxColumnwise", "noop"] as const;

describe.each(Object.entries(METHODS))("%s", (op, method) => {
  const spec = makeSpec("fp8-current", {});
  testInScope("refuses an input that is not one f32 on the backend, by its name", () => {
    for (const name of SCALARS)
      for (const [value, error, message] of [
        ["1", DTypeError, `${op}: ${name} is "1"`],
        [empty(backend(), "bf16", [1]), DTypeError, `${op}: ${name} is bf16`],
        [empty(backend(), "f32", [2]), ShapeError, `${op}: ${name} is [2]`],
        [empty(otherBackend(), "f32", [1]), ArgumentError, `${op}: its tensors live on different backends`],
      ] as const) {
        const run = () => method(quantizerWith(spec, { [name]: untyped(value) }));
        expect(run, `${name} ${value}`).toThrow(error);
        expect(run).toThrow(message);
      }
  });

  testInScope("refuses a quantization by a given scale without one", () => {
    const run = () => method(quantizerWith(makeSpec("fp8-delayed", {}), {}));
    expect(run).toThrow(ArgumentError);
    expect(run).toThrow(`${op}: fp8-delayed needs a scale tensor, f32 [1]`);
  });

  testInScope("refuses an amax, of either copy, where each row has its own", () => {
    const spec = makeSpec("nvfp4", { rowScaled: true });
    const oneElement = empty(backend(), "f32", [1]);
    for (const amaxes of [
      { amax: oneElement },
      { amaxColumnwise: oneElement },
      { amax: oneElement, amaxColumnwise: oneElement },
    ]) {
      const run = () => method(quantizerWith(spec, amaxes));
      expect(run).toThrow(ArgumentError);
      expect(run).toThrow(`${op}: rowScaled has an amax for each row`);
    }
  });
});

const block = new Float8BlockQuantizer();
refusals("a quantizer refuses", [
  [
    "a gradient of another backend",
    () => block.activationQuantize(x(), { kind: "relu", grad: x(otherBackend()) }),
    ArgumentError,
    ["activationQuantize: its tensors live on different backends"],
  ],
  [
    "a target of another backend",
    () => block.updateQuantized(x(), block.makeEmpty(otherBackend(), [16, 32])),
    ArgumentError,
    ["quantize: its tensors live on different backends"],
  ],
  [
    "what is no backend, for a new tensor",
    () => block.makeEmpty(untyped({}), [16, 32]),
    ArgumentError,
    ["makeEmpty: backend is a plain object"],
  ],
  [
    "a list in place of a norm",
    () => block.normQuantize(x(), untyped([])),
    ArgumentError,
    ["normQuantize: norm is an array of 0"],
  ],
  [
    "what is no type of values, for a new tensor",
    () => block.makeEmpty(backend(), [16, 32], untyped("e4m3")),
    ArgumentError,
    ['makeEmpty: dtype "e4m3" is not one of'],
  ],
]);
