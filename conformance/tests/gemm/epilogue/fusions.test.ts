/**
 * GELU, its gradient and the bias gradient as options of a product equal the separate operations applied to the
 * product.
 */
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { ArgumentError, DTypeError, ShapeError } from "../../../../src/errors.js";
import { tensor, zeros } from "../../../../src/ops/create.js";
import { activation, activationBackward } from "../../../../src/ops/elementwise/activation.js";
import { scaled } from "../../../../src/ops/elementwise/operators.gen.js";
import { gemm } from "../../../../src/ops/gemm/gemm.js";
import { dequantize } from "../../../../src/ops/quantize/dequantize.js";
import { columnSum } from "../../../../src/ops/rows/norm.js";
import { Float8CurrentScalingQuantizer, Float8Quantizer } from "../../../../src/quantizers/float8.js";
import { MXFP8Quantizer } from "../../../../src/quantizers/mx.js";
import type { QuantizedTensor } from "../../../../src/tensor/quantized.js";
import { Scope } from "../../../../src/tensor/scope.js";
import type { WideDType } from "../../../../src/tensor/shape.js";
import type { Tensor } from "../../../../src/tensor/tensor.js";
import { draws } from "../../harness/draws.js";
import { gridValues } from "../../harness/gradients.js";
import { type Refusal, refusals, untyped } from "../../harness/refusals.js";
import { useBackend } from "../../harness/suite.js";

const backend = useBackend({ threads: 1, datapath: "exact" });
const WIDE: readonly WideDType[] = ["f32", "bf16", "f16"];
const SIZES = { rows: 32, depth: 64, columns: 32 };

function wide(seed: number, rows: number, columns: number, dtype: WideDType): Tensor<WideDType> {
  const x = tensor(backend(), gridValues(seed, rows * columns, 2), [rows, columns]);
  return scaled(x, 1, { outDtype: dtype });
}

/** Functions that create an operand of a product, by its type or quantizer. Some operands have two leading dimensions. */
const OPERANDS: Record<string, (seed: number, rows: number) => Tensor | QuantizedTensor> = {
  f32: (seed, rows) => wide(seed, rows, SIZES.depth, "f32"),
  bf16: (seed, rows) => wide(seed, rows, SIZES.depth, "bf16"),
  "per-tensor FP8": (seed, rows) =>
    new Float8CurrentScalingQuantizer().quantize(wide(seed, rows, SIZES.depth, "bf16")),
  MXFP8: (seed, rows) => new MXFP8Quantizer().quantize(wide(seed, rows, SIZES.depth, "f16")),
};

const drawn = fc.record({
  seed: fc.nat(),
  operands: fc.constantFrom(...Object.keys(OPERANDS)),
  out: fc.constantFrom(...WIDE, "e4m3" as const, "e5m2" as const),
  given: fc.boolean(),
  outScale: fc.constantFrom(1, 0.25, 3),
  aux: fc.option(fc.constantFrom(...WIDE), { nil: undefined }),
  bias: fc.option(fc.constantFrom(...WIDE), { nil: undefined }),
  biasGradient: fc.boolean(),
  deep: fc.boolean(),
});
type Drawn = typeof drawn extends fc.Arbitrary<infer D> ? D : never;

const isWide = (dtype: string): dtype is WideDType => (WIDE as readonly string[]).includes(dtype);

/** The values rounded to a type; for FP8 the codes of the values times a scale, and their amax. */
function narrowed(
  x: Tensor<WideDType>,
  { out, outScale }: Drawn,
): { readonly codes: Tensor; readonly amax?: Tensor } {
  if (isWide(out)) return { codes: scaled(x, 1, { outDtype: out }) };
  const amax = tensor(backend(), [0]);
  const scale = tensor(backend(), [outScale]);
  const codes = new Float8Quantizer({ format: out, scale, amax }).quantize(x).copy("rowwise").data;
  return { codes, amax };
}

function bytesOf(x: Tensor): number[] {
  const data = x.dataSync();
  return [...new Uint8Array(data.buffer, data.byteOffset, data.byteLength)];
}

function same(found: Tensor | undefined, expected: Tensor | undefined): void {
  expect(found?.dtype).toBe(expected?.dtype);
  expect(found && bytesOf(found)).toEqual(expected && bytesOf(expected));
}

const run = (body: (each: Drawn, a: Tensor | QuantizedTensor, b: Tensor | QuantizedTensor) => void): void =>
  fc.assert(
    fc.property(drawn, (each) => {
      using _scope = new Scope();
      const make = OPERANDS[each.operands] as (typeof OPERANDS)[string];
      body(each, make(each.seed, SIZES.columns), make(each.seed + 1, SIZES.rows));
    }),
    { numRuns: draws(60) },
  );

describe("a product", () => {
  it("with gelu is the activation of the rounded product, which it returns as well", () => {
    run((each, a, b) => {
      const { out, outScale, aux, given, seed } = each;
      const bias = each.bias && wide(seed + 2, 1, SIZES.columns, each.bias).reshape([SIZES.columns]);
      const type = aux ?? each.bias ?? (isWide(out) ? out : "bf16");
      const pre = gemm({ a, b, outDtype: type, ...(bias ? { bias } : {}) }).out as Tensor<WideDType>;
      const how = { a, b, gelu: true, auxDtype: aux, ...(bias ? { bias } : {}) } as const;
      const scale = isWide(out) ? {} : { outScale };
      const target = given ? { out: zeros(backend(), out, [SIZES.rows, SIZES.columns]) } : { outDtype: out };
      const made = gemm({ ...how, ...scale, ...target } as never);
      same(made.preGelu, pre);
      const { codes, amax } = narrowed(
        activation(pre, { kind: "gelu", outDtype: isWide(out) ? out : "f32" }),
        each,
      );
      same(made.out, codes);
      same(made.amax, amax);
      if (given) expect(made.out).toBe(target.out);
    });
  });

  it("with geluInput is the gradient of the activation, whose f32 values a bias sums", () => {
    run((each, a, b) => {
      const { out, outScale, aux = "bf16", seed, biasGradient, deep } = each;
      const lead = deep && !("copy" in b);
      const shape = lead ? [4, SIZES.rows / 4, SIZES.columns] : [SIZES.rows, SIZES.columns];
      const input = lead ? (b as Tensor).reshape([4, SIZES.rows / 4, SIZES.depth]) : b;
      const pre = wide(seed + 3, SIZES.rows, SIZES.columns, aux);
      const product = gemm({ a, b, outDtype: "f32" }).out as Tensor<"f32">;
      const gradient = activationBackward(product, pre, { kind: "gelu", outDtype: "f32" });
      const scale = isWide(out) ? {} : { outScale };
      // geluInput is a matrix, or has the shape of the result
      const how = { a, b: input, geluInput: seed % 2 ? pre : pre.reshape(shape), biasGradient };
      const made = gemm({ ...how, ...scale, outDtype: out } as never);
      const { codes, amax } = narrowed(gradient, each);
      same(made.out, codes);
      same(made.amax, amax);
      same(made.biasGradient, biasGradient ? columnSum(gradient, isWide(out) ? out : "f32") : undefined);
      expect(made.preGelu).toBe(undefined);
      expect(made.out.shape).toEqual(shape);
    });
  });

  it("the bias gradient sums the columns of the operand, which is dequantized first if it is quantized", () => {
    run((each, a, b) => {
      const { out, outScale } = each;
      const scale = isWide(out) ? {} : { outScale };
      const made = gemm({ a, b, biasGradient: true, outDtype: out, ...scale } as never);
      const isQuantized = "copy" in b;
      const type = isQuantized ? (b as QuantizedTensor).dtype : isWide(out) ? out : "f32";
      const values = isQuantized ? dequantize(b as QuantizedTensor, "f32") : (b as Tensor<WideDType>);
      same(made.biasGradient, columnSum(values, type));
      const plain = gemm({ a, b, outDtype: out, ...scale } as never);
      same(made.out, plain.out);
      same(made.amax, plain.amax);
    });
  });
});

const f32 = (shape: readonly number[]): Tensor<"f32"> => zeros(backend(), "f32", shape);
const product =
  (options: object): Refusal[1] =>
  () =>
    gemm({ a: f32([4, 8]), b: f32([2, 8]), ...options } as never);
const codes = (): object => ({ data: zeros(backend(), "e4m3", [2, 8]), scaleInv: f32([1]) });
refusals("a product refuses", [
  [
    "both gelu and geluInput",
    () => product({ gelu: true, geluInput: f32([2, 4]) })(),
    ArgumentError,
    ["geluInput"],
  ],
  [
    "gelu and the gradient of a bias",
    product({ gelu: true, biasGradient: true }),
    ArgumentError,
    ["bias gradient"],
  ],
  ["a fused epilogue of no gelu", product({ geluEpilogue: "fused" }), ArgumentError, ["geluEpilogue"]],
  [
    "an epilogue that there is not",
    product({ gelu: true, geluEpilogue: "tanh" }),
    ArgumentError,
    ["geluEpilogue", "tanh"],
  ],
  [
    "a bias and its gradient",
    () => product({ bias: f32([4]), biasGradient: true })(),
    ArgumentError,
    ["bias"],
  ],
  ["accumulating into nothing", product({ accumulate: true }), ArgumentError, ["accumulate"]],
  [
    "accumulating beside c",
    () => product({ accumulate: true, out: f32([2, 4]), c: f32([2, 4]) })(),
    ArgumentError,
    ["accumulate", "c"],
  ],
  ["beta of nothing", product({ beta: 1 }), ArgumentError, ["beta"]],
  ...(["c", "out", "geluInput"] as const).map(
    (name): Refusal => [
      `${name} of another shape`,
      () => product({ [name]: f32([4, 2]) })(),
      ShapeError,
      [name, "[4,2]", "[2,4]"],
    ],
  ),
  ["a bias of another length", () => product({ bias: f32([2]) })(), ShapeError, ["bias", "[2]", "[4]"]],
  [
    "out of another type than outDtype",
    () => product({ out: f32([2, 4]), outDtype: "bf16" })(),
    DTypeError,
    ["f32", "bf16"],
  ],
  ...["i32", "u8", "e2m1"].map(
    (outDtype): Refusal => [
      `results of type ${outDtype}`,
      product({ outDtype }),
      DTypeError,
      [outDtype, "f32", "bf16"],
    ],
  ),
  [
    "the gradient of a bias of codes with scales of their own",
    () => gemm({ a: untyped(codes()), b: untyped(codes()), biasGradient: true }),
    DTypeError,
    ["dequantize"],
  ],
]);
