/** Products of bf16 operands and codes: the codes are multiplied as their bf16 values (datapath.md §3). */
import * as fc from "fast-check";
import { expect, it } from "vitest";
import { tensor } from "../../../../src/ops/create.js";
import { gemm } from "../../../../src/ops/gemm/gemm.js";
import { dequantize } from "../../../../src/ops/quantize/dequantize.js";
import { type CopyTensors, QuantizedTensor, type QuantizeSpec } from "../../../../src/tensor/quantized.js";
import { Scope } from "../../../../src/tensor/scope.js";
import { makeSpec } from "../../../../src/tensor/spec.js";
import type { Tensor } from "../../../../src/tensor/tensor.js";
import { assertSame } from "../../../values/difference.js";
import { download, upload, wideValues } from "../../../values/plain.js";
import { draws } from "../../harness/draws.js";
import { drawOperand, gridWideValues } from "../../harness/gemm/products.js";
import { useBackend } from "../../harness/suite.js";

const backend = useBackend({});
const { fround } = Math;

/** Weights without a factor of the whole tensor or of rows. */
const BLOCK_SCALED: Readonly<Record<string, QuantizeSpec>> = {
  mxfp8: makeSpec("mxfp8", {}),
  mxfp6: makeSpec("mxfp6", {}),
  mxfp4: makeSpec("mxfp4", {}),
  "fp8-block 128x128": makeSpec("fp8-block", { tile: "128x128", pow2Scales: false }),
  "fp8-block 1x128": makeSpec("fp8-block", { tile: "1x128", pow2Scales: false }),
};

const cases = fc.record({
  rows: fc.integer({ min: 1, max: 20 }),
  columns: fc.integer({ min: 1, max: 40 }),
  depth: fc.constantFrom(32, 96, 128, 320),
  seed: fc.nat(),
  splitK: fc.constantFrom(1, 2),
  datapath: fc.constantFrom("hopper" as const, "ada" as const, "blackwell" as const),
  alpha: fc.constantFrom(1, 0.3),
  outDtype: fc.constantFrom("bf16" as const, "f32" as const),
});

/** One split if the datapath or K has no more. */
const splitsOf = ({
  splitK,
  depth,
  datapath,
}: {
  splitK: number;
  depth: number;
  datapath: string;
}): number => (datapath === "hopper" && depth > 64 ? splitK : 1);

it.each(Object.entries(BLOCK_SCALED))(
  "a product with a weight of %s is that with its bf16 values",
  (_, spec) => {
    fc.assert(
      fc.property(cases, (given) => {
        using _scope = new Scope();
        const { rows, columns, depth, seed, datapath, alpha, outDtype } = given;
        const x = upload(backend(), gridWideValues("bf16", [rows, depth], seed));
        const w = drawOperand(backend(), spec, [columns, depth], seed + 1);
        const options = { datapath, alpha, outDtype, splitK: splitsOf(given) };
        const values = dequantize(w as QuantizedTensor, "bf16");
        assertSame(
          "out",
          download(gemm({ x, w, ...options }).out),
          download(gemm({ x, w: values, ...options }).out),
        );
        const backward = { a: x, b: w, layout: "TN" as const, ...options };
        assertSame("out", download(gemm(backward).out), download(gemm({ ...backward, b: values }).out));
      }),
      { numRuns: draws(10) },
    );
  },
);

/** The amax under which the factor of an NVFP4 tensor is 1. */
const AMAX_OF_ONE = 6 * 448;

/** The codes and scales of `w` under another amax. */
function underAmax(w: QuantizedTensor, value: number): QuantizedTensor {
  const { spec, shape, dtype, scaleLayout, quantizer } = w;
  const { data, scaleInv } = w.copy("rowwise");
  const rowwise: CopyTensors = { data, scaleInv, amax: tensor(backend(), [value]) };
  return new QuantizedTensor({ spec, shape, dtype, scaleLayout, ops: quantizer, rowwise });
}

it("the factor of an NVFP4 weight is a part of alpha, and its other values are exact in bf16", () => {
  fc.assert(
    fc.property(cases, fc.constantFrom(0.37, 3, AMAX_OF_ONE), (given, amax) => {
      using _scope = new Scope();
      const { rows, columns, depth, seed, datapath, alpha, outDtype } = given;
      const x = upload(backend(), gridWideValues("bf16", [rows, depth], seed));
      const drawn = drawOperand(
        backend(),
        makeSpec("nvfp4", {}),
        [columns, depth],
        seed + 1,
      ) as QuantizedTensor;
      const values = dequantize(underAmax(drawn, AMAX_OF_ONE), "f32");
      const rounded = dequantize(underAmax(drawn, AMAX_OF_ONE), "bf16");
      expect(wideValues(download(rounded))).toEqual(wideValues(download(values)));
      const options = { datapath, outDtype, splitK: splitsOf(given) };
      const factor = fround(fround(fround(alpha) * fround(amax)) * fround(1 / AMAX_OF_ONE));
      const { out } = gemm({ x, w: underAmax(drawn, amax), alpha, ...options });
      assertSame("out", download(out), download(gemm({ x, w: rounded, alpha: factor, ...options }).out));
    }),
    { numRuns: draws(20) },
  );
});

it.each(["fp8-current", "fp8-row"] as const)(
  "scales of %s multiply the sums of the codes' values",
  (name) => {
    fc.assert(
      fc.property(cases, (given) => {
        using _scope = new Scope();
        const { rows, columns, depth, seed, datapath, splitK: _splits, ...options } = given;
        const x = upload(backend(), gridWideValues("bf16", [rows, depth], seed));
        const w = drawOperand(backend(), makeSpec(name, {}), [columns, depth], seed + 1) as QuantizedTensor;
        const { data, scaleInv } = w.copy("rowwise");
        const tile = name === "fp8-row" ? ("1xK" as const) : ("tensor" as const);
        const scaled = gemm({
          x,
          w: { data, scaleInv: scaleInv as Tensor<"f32">, tile },
          datapath,
          ...options,
        });
        assertSame("out", download(gemm({ x, w, datapath, ...options }).out), download(scaled.out));
        const sums = gemm({ x, w: data, datapath, outDtype: "f32" }).out.dataSync();
        const exact = gemm({ x, w, datapath, outDtype: "f32" }).out.dataSync();
        const scales = scaleInv.dataSync();
        for (const [i, sum] of sums.entries()) {
          const scale = Number(scales[name === "fp8-row" ? i % columns : 0]);
          expect(exact[i]).toBe(fround(Number(sum) * scale));
        }
      }),
      { numRuns: draws(10) },
    );
  },
);
