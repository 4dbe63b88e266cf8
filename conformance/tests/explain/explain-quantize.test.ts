/**
 * `explainQuantize` takes every option and elements of tensors of any rank, and refuses arguments that a quantizer does not take.
 */
import { describe, expect, it } from "vitest";
import { ArgumentError, DTypeError, ShapeError } from "../../../src/errors.js";
import { type ExplainQuantizeOptions, explainQuantize } from "../../../src/explain/explain-quantize.js";
import { QuantizeExplainer } from "../../../src/explain/quantize.js";
import { tensor } from "../../../src/ops/create.js";
import { NVFP4Quantizer } from "../../../src/quantizers/nvfp4.js";
import { Scope } from "../../../src/tensor/scope.js";
import { makeSpec } from "../../../src/tensor/spec.js";
import { type Refusal, refusals } from "../harness/refusals.js";
import { useBackend } from "../harness/suite.js";

const backend = useBackend({ threads: 1 });

const [ROWS, COLUMNS] = [32, 32];
const data = Float32Array.from({ length: ROWS * COLUMNS }, (_, i) => Math.sin(i) * 2 ** (i % 5));
const x = { data, dtype: "f32", shape: [ROWS, COLUMNS] } as const;
const AT = [3, 5] as const;

const explain = (
  options: Partial<ExplainQuantizeOptions>,
  input: Parameters<typeof explainQuantize>[0] = x,
) => explainQuantize(input, { spec: makeSpec("mxfp8", {}), at: AT, ...options });

describe("an option of explainQuantize", () => {
  const stochastic = makeSpec("mxfp8", { stochastic: true });
  const randomBits = new Uint32Array(ROWS * COLUMNS).map((_, i) => Math.imul(i + 1, 0x9e3779b1));
  const CASES = {
    scale: { spec: makeSpec("fp8-delayed", {}), scale: 1 / 3 },
    "amax of a tensor": { spec: makeSpec("fp8-current", {}), amax: 77.7 },
    "amax under blocks": { spec: makeSpec("nvfp4", {}), amax: 77.7 },
    direction: { spec: makeSpec("mxfp8", {}), direction: "columnwise" },
    random: { spec: stochastic, random: { seed: 7n, offset: 3n } },
    randomBits: { spec: stochastic, randomBits },
    values: { spec: makeSpec("nvfp4", {}), values: { type: "bf16", typedScale: true } },
  } as const satisfies Record<string, Pick<ExplainQuantizeOptions, "spec"> & Partial<ExplainQuantizeOptions>>;

  it.each(Object.entries(CASES))("%s: reaches the explanation", (_, { spec, ...options }) => {
    const context: Partial<ExplainQuantizeOptions> = options;
    const { direction = "rowwise", scale, amax, ...otherContext } = context;
    const defaults = {
      ...(scale === undefined ? {} : { scale: Math.fround(scale) }),
      ...(amax === undefined ? {} : { amax: Math.fround(amax) }),
    };
    const expected = new QuantizeExplainer(x, spec, { direction, ...defaults, ...otherContext }).explain(
      ...AT,
    );
    expect(explain({ spec, ...options })).toEqual(expected);
    const requiredOptions = scale === undefined ? {} : { scale: 1 };
    expect(explain({ spec, ...requiredOptions })).not.toEqual(expected);
  });
});

describe("an element of a tensor with many dimensions", () => {
  it.each([1, 3, 8, 9, 10, 12])("%i", (rank) => {
    const shape = [...Array.from({ length: rank - 1 }, (_, i) => (i < 5 ? 2 : 1)), 32];
    const position = shape.map((size, axis) => (axis + 1) % size);
    const index = shape.reduce((flatIndex, size, axis) => flatIndex * size + (position[axis] as number), 0);
    const count = shape.reduce((product, size) => product * size, 1);
    const matrixInput = { ...x, data: data.slice(0, count), shape: [count / 32, 32] };
    const expected = explain({ at: [Math.floor(index / 32), index % 32] }, matrixInput);
    expect(explain({ at: position }, { ...matrixInput, shape })).toEqual(expected);
    // the last index is beyond its dimension, and one index is too many
    const positionText = (indices: readonly number[]): string =>
      `at is [${indices.slice(0, 8)}${indices.length > 8 ? ",..." : ""}]`;
    const [beyondShape, tooManyIndices] = [
      [...position.slice(0, -1), 32],
      [...position, 0],
    ];
    expect(() => explain({ at: beyondShape }, { ...matrixInput, shape })).toThrow(
      `${positionText(beyondShape)}; index ${rank - 1} must`,
    );
    expect(() => explain({ at: tooManyIndices }, { ...matrixInput, shape })).toThrow(
      `${positionText(tooManyIndices)}, ${rank + 1} indices`,
    );
  });
});

it("explains the rowwise copy of f32 whose columnwise copy could not be transformed, as quantize computes it", () => {
  using _scope = new Scope();
  const quantizedTensor = new NVFP4Quantizer({ rht: true }).quantize(
    tensor(backend(), data, [ROWS, COLUMNS]),
  );
  const byte = Number(quantizedTensor.copy("rowwise").data.dataSync()[(AT[0] * COLUMNS + AT[1]) >> 1]);
  expect(explain({ spec: quantizedTensor.spec }).code).toBe(AT[1] % 2 === 1 ? byte >> 4 : byte & 15);
});

const specOf = (...args: Parameters<typeof makeSpec>): { readonly spec: ReturnType<typeof makeSpec> } => ({
  spec: makeSpec(...args),
});
refusals("explainQuantize refuses", [
  ["a missing scale", () => explain(specOf("fp8-delayed", {})), ArgumentError, ["needs a scale"]],
  ["a scale of a quantizer that takes none", () => explain({ scale: 1 }), ArgumentError, ["takes no scale"]],
  ["an amax of a quantizer without one", () => explain({ amax: 1 }), ArgumentError, ["uses no amax"]],
  [
    "an amax of a tensor with amaxes of rows",
    () => explain({ ...specOf("nvfp4", { rowScaled: true }), amax: 1 }),
    ArgumentError,
    ["rowScaled"],
  ],
  [
    "a transform of f32",
    () => explain({ ...specOf("nvfp4", { rht: true }), direction: "columnwise" }),
    ArgumentError,
    ["takes bf16 input; x is f32"],
  ],
  [
    "columns that blocks do not divide",
    () => explain({ at: [0, 0] }, { ...x, data: data.slice(0, 20), shape: [1, 20] }),
    ShapeError,
    ["20"],
  ],
  [
    "random bits without stochastic rounding",
    () => explain({ randomBits: new Uint32Array(ROWS * COLUMNS) }),
    ArgumentError,
    ["randomBits"],
  ],
  [
    "too few random bits",
    () => explain({ ...specOf("mxfp8", { stochastic: true }), randomBits: new Uint32Array(1) }),
    ShapeError,
    ["randomBits has 1"],
  ],
  ["too few elements", () => explain({}, { ...x, data: data.slice(1) }), ShapeError, ["1023 elements"]],
  ["data of another type", () => explain({}, { ...x, dtype: "bf16" }), DTypeError, ["Uint16Array"]],
] satisfies readonly Refusal[]);
