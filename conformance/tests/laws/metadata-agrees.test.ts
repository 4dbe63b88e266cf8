/**
 * Whenever two quantized tensors differ in a field of their specs, every consumer of both computes with the values that both
 * represent, or refuses with a typed error.
 */
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { autocast } from "../../../src/autocast.js";
import { ArgumentError, LockstepError } from "../../../src/errors.js";
import { Linear } from "../../../src/modules/linear.js";
import { tensor } from "../../../src/ops/create.js";
import { scaled } from "../../../src/ops/elementwise/operators.gen.js";
import { gemm } from "../../../src/ops/gemm/gemm.js";
import type { GemmLayout } from "../../../src/ops/gemm/named-operands.js";
import { RHT_SIGNS } from "../../../src/ops/quantize/hadamard.js";
import { NVFP4Quantizer } from "../../../src/quantizers/nvfp4.js";
import type { Quantizer } from "../../../src/quantizers/quantizer.js";
import { NVFP4BlockScaling } from "../../../src/recipes/block-scaled.js";
import { CustomRecipe } from "../../../src/recipes/custom.js";
import { checkRecipeSupport } from "../../../src/recipes/support.js";
import type { Role } from "../../../src/recipes/table.js";
import { wideOf } from "../../../src/tape/value.js";
import { Variable } from "../../../src/tape/variable.js";
import { type Direction, QuantizedTensor, type QuantizeSpec } from "../../../src/tensor/quantized.js";
import { Scope } from "../../../src/tensor/scope.js";
import type { WideDType } from "../../../src/tensor/shape.js";
import { makeSpec } from "../../../src/tensor/spec.js";
import type { Tensor } from "../../../src/tensor/tensor.js";
import { draws } from "../harness/draws.js";
import { gridValues } from "../harness/gradients.js";
import { useBackend } from "../harness/suite.js";
import { casesOf, FIELD_NAMES, type Pair, quantizerOf } from "./spec-pairs.js";

const backend = useBackend({ threads: 1, datapath: "exact" });

function values(seed: number, rows: number, columns: number): Tensor<WideDType> {
  return scaled(tensor(backend(), gridValues(seed, rows * columns, 2), [rows, columns]), 1, {
    outDtype: "bf16",
  });
}

/** The numbers of the only copy. */
function numbers(tensorLike: QuantizedTensor | Tensor): Float32Array {
  const wideTensor =
    "spec" in tensorLike ? tensorLike.dequantize("f32") : scaled(tensorLike, 1, { outDtype: "f32" });
  return Float32Array.from(wideTensor.dataSync() as Float32Array);
}

const quantizerAlong = (spec: QuantizeSpec, direction: Direction): Quantizer =>
  quantizerOf(backend(), spec, { rowwise: direction === "rowwise", columnwise: direction === "columnwise" });

/** The product of two matrices of lines along their second dimension, or along their first if `xAcross` or `wAcross`. */
function product(
  [x, w]: readonly [Float32Array, Float32Array],
  [rows, columns, depth]: readonly [number, number, number],
  { xAcross, wAcross }: { readonly xAcross: boolean; readonly wAcross: boolean },
): Float64Array {
  const out = new Float64Array(rows * columns);
  for (let i = 0; i < rows; i++)
    for (let j = 0; j < columns; j++) {
      let sum = 0;
      for (let k = 0; k < depth; k++)
        sum +=
          (x[xAcross ? k * rows + i : i * depth + k] as number) *
          (w[wAcross ? k * columns + j : j * depth + k] as number);
      out[i * columns + j] = sum;
    }
  return out;
}

/**
 * The relative difference of two matrices in the Frobenius norm; 0 if both are equal, including NaN. Wrong factors, scales or
 * transforms differ by at least a tenth, results rounded to bf16 by at most 2^-8.
 */
function difference(actual: Float32Array, expected: Float64Array): number {
  let [square, total] = [0, 0];
  for (const [i, value] of expected.entries()) {
    if (Number.isNaN(value) && Number.isNaN(actual[i])) continue;
    square += (value - (actual[i] as number)) ** 2;
    total += value ** 2;
  }
  return square === 0 ? 0 : Math.sqrt(square / total);
}

/** The result of `body`; undefined if it throws a typed error. Any other error fails the test. */
function attempt<R>(body: () => R): R | undefined {
  try {
    return body();
  } catch (error) {
    if (error instanceof LockstepError) return undefined;
    throw error;
  }
}

const [M, N, K] = [32, 64, 128];
const LAYOUTS: Readonly<Record<GemmLayout, readonly [Direction, Direction]>> = {
  TN: ["rowwise", "rowwise"],
  NN: ["columnwise", "rowwise"],
  NT: ["columnwise", "columnwise"],
};

/** Whether the product is computed, in which case it must be the product of the values; false if it is refused. */
function canMultiply([specOfA, specOfB]: Pair, layout: GemmLayout): boolean {
  using _scope = new Scope();
  const [alongA, alongB] = LAYOUTS[layout];
  const [wAcross, xAcross] = [alongA === "columnwise", alongB === "columnwise"];
  const a = quantizerAlong(specOfA, alongA).quantize(values(3, wAcross ? K : N, wAcross ? N : K));
  const b = quantizerAlong(specOfB, alongB).quantize(values(5, xAcross ? K : M, xAcross ? M : K));
  const result = attempt(() => gemm({ a, b, layout, outDtype: "f32" }));
  if (!result) return false;
  const expected = product([numbers(b), numbers(a)], [M, N, K], { xAcross, wAcross });
  expect(difference(numbers(result.out), expected)).toBeLessThan(2 ** -12);
  return true;
}

/** A call of a layer: the role that has another spec than the others, or a quantized input with that spec. */
type Call = Extract<Role, "input" | "weight" | "gradOutput"> | "quantized input";
const CALLS: readonly Call[] = ["input", "weight", "gradOutput", "quantized input"];

/** As `multiplies`, for the gradients of a layer: they must be the gradients of the quantized values. */
function canTrain([spec, otherSpec]: Pair, call: Call): boolean {
  using _scope = new Scope();
  const [rows, inward, outward] = [64, 32, 32];
  // the weight is not transformed, because its other factor, the rowwise gradient, is not
  const specOfWeights = { ...spec, rht: false, rhtSigns: 0 };
  const specOf = (role: Role): QuantizeSpec =>
    role === call ? otherSpec : role === "weight" ? specOfWeights : spec;
  const specOfInput = call === "quantized input" ? otherSpec : specOf("input");
  const specOfGradient = specOf("gradOutput");
  const recipe = new CustomRecipe({ quantizerFactory: (role) => quantizerOf(backend(), specOf(role)) });
  using layer = new Linear(backend(), inward, outward, { dtype: "bf16", bias: false });
  const [x, dy] = [values(3, rows, inward), values(5, rows, outward)];
  const w = wideOf("the weight", layer.weight.value);
  const readAs = (source: Tensor, readSpec: QuantizeSpec, direction: Direction): Float32Array =>
    numbers(quantizerAlong(readSpec, direction).quantize(source));
  const input = new Variable(x, true);
  const operand = call === "quantized input" ? quantizerOf(backend(), otherSpec).quantize(x) : input;
  try {
    const succeeds = attempt(() => {
      autocast({ recipe }, () => layer.forward(operand)).backward(dy);
      return true;
    });
    if (!succeeds) return false;
    const wgradOperands = [
      readAs(dy, specOfGradient, "columnwise"),
      readAs(x, specOfInput, "columnwise"),
    ] as const;
    const dw = product(wgradOperands, [outward, inward, rows], { xAcross: true, wAcross: true });
    expect(difference(numbers(layer.weight.grad as Tensor), dw)).toBeLessThan(2 ** -6);
    if (operand !== input) return true;
    const dgradOperands = [
      readAs(dy, specOfGradient, "rowwise"),
      readAs(w, specOf("weight"), "columnwise"),
    ] as const;
    const dx = product(dgradOperands, [rows, inward, outward], { xAcross: false, wAcross: true });
    expect(difference(numbers(wideOf("the gradient", input.grad as Tensor<"bf16">)), dx)).toBeLessThan(
      2 ** -6,
    );
    return true;
  } finally {
    for (const leaf of [input, layer.weight]) leaf.zeroGrad();
  }
}

describe.each(FIELD_NAMES)("two specs that differ in %s", (field) => {
  it("a product is that of the values, or refused", () => {
    const cases = casesOf(field, Object.keys(LAYOUTS) as GemmLayout[]);
    expect(cases.filter(([pair, layout]) => canMultiply(pair, layout))).not.toEqual([]);
  });

  it("a layer's gradients are those of the values, or refused", () => {
    const trainableCases = casesOf(field, CALLS).filter(([pair, call]) => canTrain(pair, call));
    // different signs are always refused
    if (field === "rhtSigns") expect(trainableCases).toEqual([]);
    else expect(trainableCases).not.toEqual([]);
  });

  it("a tensor is not updated by a quantizer of the other", () => {
    for (const [[spec, otherSpec]] of casesOf(field, [undefined]).slice(0, 4)) {
      using _scope = new Scope();
      const x = values(3, M, K);
      const [target, source] = [quantizerOf(backend(), spec).quantize(x), values(5, M, K)];
      expect(() => quantizerOf(backend(), otherSpec).updateQuantized(source, target)).toThrow(ArgumentError);
      quantizerOf(backend(), spec).updateQuantized(source, target);
      expect(target.quantize_(source)).toBe(target);
    }
  });
});

describe.each(FIELD_NAMES)("members of tensors whose specs differ in %s", (field) => {
  it("are pasted only between equal dtypes, and read under the other spec only if they have its shapes and dtypes", () => {
    for (const [[spec, otherSpec]] of casesOf(field, [undefined]).slice(0, 6)) {
      using _scope = new Scope();
      const [target, source] = [spec, otherSpec].map((pairSpec) =>
        quantizerAlong(pairSpec, "rowwise").quantize(values(3, M, K)),
      );
      if (!target || !source) throw new Error("both are quantized");
      const { data, scaleInv } = source.copy("rowwise");
      for (const part of ["data", "scaleInv"] as const) {
        const [targetTensor, sourceTensor] = [target.copy("rowwise")[part], { data, scaleInv }[part]];
        const pasteResult = attempt(() => targetTensor.paste(sourceTensor as never, 0));
        if (pasteResult) expect(sourceTensor.dtype).toBe(targetTensor.dtype);
        const slice = attempt(() => sourceTensor.slice(0, targetTensor.shape));
        if (slice) expect([slice.dtype, slice.shape]).toEqual([sourceTensor.dtype, targetTensor.shape]);
      }
      const { shape, dtype, scaleLayout } = target;
      const relabelResult = attempt(
        () =>
          new QuantizedTensor({
            ...{ spec, shape, dtype, scaleLayout, ops: quantizerAlong(spec, "rowwise") },
            rowwise: source.copy("rowwise"),
          }),
      );
      if (!relabelResult) continue;
      const ownCopy = target.copy("rowwise");
      expect(data).toMatchObject({ dtype: ownCopy.data.dtype, shape: ownCopy.data.shape });
      expect(scaleInv).toMatchObject({ dtype: ownCopy.scaleInv.dtype, shape: ownCopy.scaleInv.shape });
      expect(relabelResult.dequantize("f32").shape).toEqual(shape);
    }
  });

  it("are not read or written by the quantizer of the other", () => {
    for (const [[spec, otherSpec]] of casesOf(field, [undefined]).slice(0, 6)) {
      using _scope = new Scope();
      const target = quantizerOf(backend(), spec).quantize(values(3, M, K));
      expect(() => target.updateQuantizer(quantizerOf(backend(), otherSpec))).toThrow(ArgumentError);
      target.updateQuantizer(quantizerOf(backend(), spec));
      expect(numbers(target)).toHaveLength(M * K);
    }
  });
});

const TRANSFORMS: readonly (number | undefined)[] = [undefined, 0, RHT_SIGNS, 1];
const transformedBy = (signs: number | undefined): QuantizeSpec =>
  makeSpec("nvfp4", signs === undefined ? {} : { rht: true, rhtSigns: signs });

describe("the Hadamard transform", () => {
  const pairs = TRANSFORMS.flatMap((firstTransform) =>
    TRANSFORMS.map((secondTransform) => [firstTransform, secondTransform] as const),
  );

  it.each(pairs)(
    "signs %s by signs %s: multiplied along transformed rows exactly if they are equal",
    (firstTransform, secondTransform) => {
      const quantizerSpecs = [transformedBy(firstTransform), transformedBy(secondTransform)] as const;
      expect(canMultiply(quantizerSpecs, "NT")).toBe(firstTransform === secondTransform);
      expect(canMultiply(quantizerSpecs, "NN")).toBe(firstTransform === undefined);
      expect(canMultiply(quantizerSpecs, "TN")).toBe(true);
    },
  );

  it("of one operand, and not of the tensor that it is multiplied with, is refused", () => {
    using _scope = new Scope();
    const a = quantizerAlong(transformedBy(RHT_SIGNS), "columnwise").quantize(values(3, K, N));
    expect(() => gemm({ a, b: values(5, K, M), layout: "NT" })).toThrow(
      "gemm: a has passed through the Hadamard transform with the signs 0xd7e8 and b is not transformed",
    );
  });

  it("of a recipe's roles is told before anything is computed", () => {
    const support = (transformedRoles: readonly Role[]) => {
      using _scope = new Scope();
      const rht = (role: Role): boolean => transformedRoles.includes(role);
      const quantizerFactory = (role: Role): Quantizer =>
        new NVFP4Quantizer({ rht: rht(role), columnwise: true });
      return checkRecipeSupport(new CustomRecipe({ quantizerFactory }), backend());
    };
    expect(support([])).toEqual({ ok: true });
    expect(support(["input", "gradOutput"])).toEqual({ ok: true });
    for (const roles of [["input"], ["gradOutput"]] as const)
      expect(support(roles)).toMatchObject({ ok: false, reason: expect.stringMatching(/^wgrad: the /) });
    expect(support(["input", "weight", "gradOutput"])).toMatchObject({
      ok: false,
      reason: expect.stringMatching(/^dgrad: the weight has passed through/),
    });
  });

  it("is not missing from an input that was quantized before and is shared by two layers", () => {
    using _scope = new Scope();
    using firstLayer = new Linear(backend(), 32, 32, { dtype: "bf16" });
    using secondLayer = new Linear(backend(), 32, 32, { dtype: "bf16" });
    const x = values(3, 64, 32);
    const shared = new NVFP4Quantizer({ columnwise: true }).quantize(x);
    const signless = new NVFP4Quantizer({ columnwise: true, rht: true }).quantize(x);
    for (const layer of [firstLayer, secondLayer]) {
      autocast({ recipe: new NVFP4BlockScaling() }, () => {
        expect(() => layer.forward(shared)).toThrow(
          "linear: the input is not transformed and the gradient of the result has passed through the Hadamard transform",
        );
        layer.forward(signless).backward(values(5, 64, 32));
      });
      layer.weight.zeroGrad();
      layer.bias?.zeroGrad();
    }
  });

  it("is undone by dequantize, from the columnwise copy alone, whatever its signs and rows", () => {
    fc.assert(
      fc.property(fc.constantFrom(...TRANSFORMS), fc.integer({ min: 1, max: 70 }), (signs, rows) => {
        using _scope = new Scope();
        const x = values(rows, rows, 32);
        const quantizedTensor = quantizerAlong(transformedBy(signs), "columnwise").quantize(x);
        // FP4 has an error of about a tenth
        expect(difference(numbers(quantizedTensor), Float64Array.from(numbers(x)))).toBeLessThan(0.3);
      }),
      {
        numRuns: draws(20),
        examples: [
          [RHT_SIGNS, 1],
          [RHT_SIGNS, 64],
        ],
      },
    );
  });
});
