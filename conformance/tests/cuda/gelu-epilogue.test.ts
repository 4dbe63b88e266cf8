/** cuBLASLt's fused GELU is close to the reference's, is reported as approximate, and runs only on request. */
import { expect, it } from "vitest";
import type { Backend } from "../../../src/backends/backend.js";
import { UnsupportedError } from "../../../src/errors.js";
import { gemm } from "../../../src/ops/gemm/gemm.js";
import type { GemmOptions } from "../../../src/ops/gemm/options.js";
import { Float8CurrentScalingQuantizer } from "../../../src/quantizers/float8.js";
import { Scope } from "../../../src/tensor/scope.js";
import { isWide, type WideDType } from "../../../src/tensor/shape.js";
import type { Tensor } from "../../../src/tensor/tensor.js";
import { GuardedBackend } from "../../operations/guarded.js";
import { assertSame } from "../../values/difference.js";
import { download, type PlainTensor, upload, wideValues } from "../../values/plain.js";
import { gridWideValues } from "../harness/gemm/products.js";
import { describeOnGpu, useGpu } from "../harness/gpu/gpu.js";

/**
 * About twice the largest difference measured on an H200, relative to 1 + |x|. 16-bit results differ by more than one
 * rounding, because the reference applies GELU to the rounded argument and cuBLASLt to the f32 sum.
 */
const BOUND: Readonly<Record<WideDType, number>> = { f32: 5e-6, bf16: 0.0125, f16: 0.0016 };
/** Scales the argument of GELU to the range where GELU is not linear. */
const ALPHA = 0.005;

const SIZE = { m: 256, n: 512, k: 256 };

function operand(backend: Backend, type: "bf16" | "f16" | "e4m3", lines: number, seed: number) {
  const wide = type === "e4m3" ? "bf16" : type;
  const x = upload(backend, gridWideValues(wide, [lines, SIZE.k], seed));
  return type === "e4m3" ? new Float8CurrentScalingQuantizer({ columnwise: false }).quantize(x) : x;
}

function valuesOf(x: Tensor): Float32Array {
  const plain = download(x);
  if (!isWide(plain.dtype)) throw new Error("GELU's results here are wide");
  return wideValues(plain as PlainTensor<WideDType>);
}

describeOnGpu("GELU fused into a product", () => {
  const { gpu, reference } = useGpu();

  const given = (
    backend: Backend,
    type: "bf16" | "f16" | "e4m3",
    out: WideDType,
    biased: boolean,
  ): GemmOptions => ({
    a: operand(backend, type, SIZE.n, 1),
    b: operand(backend, type, SIZE.m, 2),
    ...(biased ? { bias: upload(backend, gridWideValues(out, [SIZE.n], 3)) } : {}),
    outDtype: out,
    auxDtype: out,
    alpha: ALPHA,
    gelu: true,
    datapath: gpu().datapath,
  });

  it.each([
    ["bf16", "bf16", true],
    ["bf16", "f32", true],
    ["f16", "f16", true],
    ["f16", "f32", false],
    ["e4m3", "bf16", true],
    ["e4m3", "f32", false],
  ] as const)(
    "%s into %s, bias %s: is near our own GELU, and returns the same argument of GELU",
    (type, out, biased) => {
      using _scope = new Scope();
      const options = given(gpu(), type, out, biased);
      const fused = gemm({ ...options, geluEpilogue: "fused" });
      const exact = gemm(options);
      assertSame("preGelu", download(fused.preGelu as Tensor), download(exact.preGelu as Tensor));
      const [actual, expected] = [valuesOf(exact.out), valuesOf(fused.out)];
      const argument = valuesOf(exact.preGelu as Tensor);
      const errors = actual.map(
        (y, i) => Math.abs(y - (expected[i] as number)) / (1 + Math.abs(argument[i] as number)),
      );
      const worst = errors.reduce((most, error) => Math.max(most, error), 0);
      console.info(`GELU fused, ${type} into ${out}: off by up to ${worst.toExponential(2)} of 1 + |x|`);
      expect(worst).toBeLessThan(BOUND[out]);
      expect(expected).not.toEqual(argument);
    },
  );

  it("is our own GELU, to the bit, unless the approximate one is requested", () => {
    using _scope = new Scope();
    const exact = gemm(given(gpu(), "bf16", "bf16", true));
    const { datapath: _, ...options } = given(reference(), "bf16", "bf16", true);
    assertSame("out", download(exact.out), download(gemm({ ...options, plan: exact.plan }).out));
  });

  it("is reported as approximate", () => {
    using _scope = new Scope();
    const options = given(new GuardedBackend(gpu()), "bf16", "bf16", true);
    expect(() => gemm({ ...options, geluEpilogue: "fused" })).toThrow(
      /no promise of the same bits: cuBLASLt's GELU/,
    );
  });

  it("is declined where cuBLASLt has none, with the reason", () => {
    using _scope = new Scope();
    const fused = (options: GemmOptions) => () => gemm({ ...options, geluEpilogue: "fused" });
    expect(fused({ ...given(gpu(), "bf16", "bf16", false), outDtype: "e4m3" })).toThrow(UnsupportedError);
    expect(fused(given(gpu(), "e4m3", "f32", true))).toThrow(/geluEpilogue exact/);
    expect(fused({ ...given(gpu(), "bf16", "f32", false), auxDtype: "bf16" })).toThrow(/in the same type/);
  });
});
