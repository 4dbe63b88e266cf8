/** Products: layouts, copies, datapaths, and drawn products compared with the oracle. */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { Backend } from "../../../src/backends/backend.js";
import { openBackend } from "../../../src/backends/open.js";
import { UnsupportedError } from "../../../src/errors.js";
import { encode } from "../../../src/ops/cast/cast.js";
import { tensor } from "../../../src/ops/create.js";
import { gemm } from "../../../src/ops/gemm/gemm.js";
import type { GeneralOperands } from "../../../src/ops/gemm/named-operands.js";
import type { GemmInput } from "../../../src/ops/gemm/operand.js";
import { transpose } from "../../../src/ops/layout/layout.js";
import { dequantize } from "../../../src/ops/quantize/dequantize.js";
import { Float8CurrentScalingQuantizer } from "../../../src/quantizers/float8.js";
import { Float8BlockQuantizer } from "../../../src/quantizers/float8-block.js";
import { MXFP8Quantizer } from "../../../src/quantizers/mx.js";
import { NVFP4Quantizer } from "../../../src/quantizers/nvfp4.js";
import type { Quantizer, QuantizerOptions } from "../../../src/quantizers/quantizer.js";
import type { Tensor } from "../../../src/tensor/tensor.js";
import { assertSameAnswer } from "../../laws/laws.js";
import { runConformance } from "../../laws/run.js";
import { codesOf } from "../../operations/gemm/arbitrary-codes.js";
import { runOracle } from "../../operations/gemm/kernel.js";
import { backendSubject, ORACLE } from "../../operations/operations.js";
import { fromCodes, PlainTensor } from "../../values/plain.js";
import { derivedSeed, draws } from "../harness/draws.js";
import { cast, codesOfTensor, noise } from "../harness/noise.js";
import { testInScope } from "../harness/suite.js";

let one: Backend;
let two: Backend;
beforeAll(async () => {
  [one, two] = await Promise.all([openBackend("wasm", { threads: 1 }), openBackend("wasm", { threads: 2 })]);
});
afterAll(async () => {
  const live = [one, two].map((backend) => backend.memoryUse().live);
  await Promise.all([one.dispose(), two.dispose()]);
  expect(live).toEqual([0, 0]);
});

describe("layouts and copies", () => {
  testInScope("TN, NN and NT of plain operands are one product", () => {
    const [a, b] = [cast(noise(one, 20, 48, 1), "bf16"), cast(noise(one, 12, 48, 2), "bf16")];
    const expected = codesOfTensor(gemm({ a, b, outDtype: "f32" }).out);
    expect(codesOfTensor(gemm({ a: transpose(a), b, layout: "NN", outDtype: "f32" }).out)).toEqual(expected);
    const both = { a: transpose(a), b: transpose(b), layout: "NT", outDtype: "f32" } as const;
    expect(codesOfTensor(gemm(both).out)).toEqual(expected);
  });

  const quantizers: readonly (readonly [
    string,
    (options: QuantizerOptions) => Quantizer,
    (options: QuantizerOptions) => Quantizer,
  ])[] = [
    [
      "fp8-current",
      (o) => new Float8CurrentScalingQuantizer(o),
      (o) => new Float8CurrentScalingQuantizer({ ...o, format: "e5m2" }),
    ],
    [
      "fp8-block",
      (o) => new Float8BlockQuantizer({ ...o, tile: "128x128" }),
      (o) => new Float8BlockQuantizer(o),
    ],
    ["mxfp8", (o) => new MXFP8Quantizer(o), (o) => new MXFP8Quantizer(o)],
    ["nvfp4", (o) => new NVFP4Quantizer({ ...o, tile: "16x16" }), (o) => new NVFP4Quantizer(o)],
  ];
  for (const [name, weights, inputs] of quantizers) {
    testInScope(`${name}: each layout multiplies the copies scaled along the sum`, () => {
      const both = { rowwise: true, columnwise: true };
      const [w, x] = [noise(one, 64, 160, 3), noise(one, 32, 160, 4)];
      const [wt, xt] = [transpose(w), transpose(x)];
      for (const datapath of ["exact", "hopper"] as const) {
        const result = (options: GeneralOperands<GemmInput>) =>
          codesOfTensor(gemm({ ...options, datapath, outDtype: "f32" }).out);
        const expected = result({ a: weights(both).quantize(w), b: inputs(both).quantize(x) });
        expect(result({ a: weights(both).quantize(wt), b: inputs(both).quantize(x), layout: "NN" })).toEqual(
          expected,
        );
        expect(result({ a: weights(both).quantize(wt), b: inputs(both).quantize(xt), layout: "NT" })).toEqual(
          expected,
        );
      }
    });

    testInScope(`${name}: stored scale layouts change nothing`, () => {
      const [w, x] = [noise(one, 64, 160, 5), noise(one, 32, 160, 6)];
      const layouts = name.startsWith("fp8") ? (["padded"] as const) : (["padded", "swizzled"] as const);
      const result = (scaleLayout: "logical" | "padded" | "swizzled") =>
        codesOfTensor(
          gemm({
            a: weights({ scaleLayout }).quantize(w),
            b: inputs({ scaleLayout }).quantize(x),
            outDtype: "f32",
          }).out,
        );
      for (const layout of layouts) expect(result(layout)).toEqual(result("logical"));
    });
  }

  testInScope("datapath exact of MXFP8 operands gives the exact product of the dequantized values", () => {
    const [w, x] = [noise(one, 32, 64, 7), noise(one, 32, 64, 8)].map((t) =>
      new MXFP8Quantizer().quantize(t),
    ) as [ReturnType<Quantizer["quantize"]>, ReturnType<Quantizer["quantize"]>];
    const plain = gemm({ a: dequantize(w, "f32"), b: dequantize(x, "f32"), datapath: "exact" });
    expect(codesOfTensor(gemm({ a: w, b: x, datapath: "exact", outDtype: "f32" }).out)).toEqual(
      codesOfTensor(plain.out),
    );
  });

  testInScope("NVFP4's amaxes enter alpha: 6.5 and 3.25 give 0x36443568", () => {
    const matrix = (amax: number) => {
      const values = new Float32Array(16 * 16);
      values[0] = amax;
      return new NVFP4Quantizer().quantize(tensor(one, values, [16, 16]));
    };
    const [w, x] = [matrix(6.5), matrix(3.25)];
    for (const t of [w, x]) {
      const codes = new Uint8Array(16 * 8);
      codes[0] = 2; // 1.0
      t.copy("rowwise").data.write(codes);
      t.copy("rowwise").scaleInv.write(new Uint8Array(16).fill(0x38)); // 1.0
    }
    expect(codesOfTensor(gemm({ a: w, b: x, outDtype: "f32" }).out)[0]).toBe(0x36443568);
  });
});

describe("datapaths", () => {
  testInScope("the default is hopper; the number of threads changes no bit", () => {
    const bits = [one, two].map((backend) => {
      const [a, b] = [
        encode(noise(backend, 150, 300, 9), { format: "e4m3" }),
        encode(noise(backend, 70, 300, 10), { format: "e5m2" }),
      ];
      const { out, plan } = gemm({ a, b, outDtype: "f32" });
      expect(plan).toEqual({ datapath: "hopper-fp8", splitAccumulator: false, splitK: 1 });
      return codesOfTensor(out);
    });
    expect(bits[0]).toEqual(bits[1]);
  });

  testInScope("a product of codes is the oracle's, split or not, and its plan replays it", () => {
    const [x, w] = [codesOf("e4m3", 3, 600, 11), codesOf("e4m3", 4, 600, 12)];
    const [a, b] = [w, x].map(({ lines }) =>
      tensor(one, Uint8Array.from(lines.flat()), [lines.length, 600], "e4m3"),
    ) as [Tensor, Tensor];
    const task = { x, w, depth: 600, datapath: "hopper-fp8", kernel: "scalar" } as const;
    const wished = { a, b, outDtype: "f32", useSplitAccumulator: true, splitK: 3 } as const;
    const { out, plan } = gemm(wished);
    expect(codesOfTensor(out)).toEqual(Array.from(runOracle({ ...task, promotion: "add", splits: 3 })));
    expect(codesOfTensor(gemm({ a, b, outDtype: "f32", plan }).out)).toEqual(codesOfTensor(out));
    expect(codesOfTensor(gemm({ a, b, outDtype: "f32" }).out)).toEqual(Array.from(runOracle(task)));
  });

  testInScope("operands without a rule in the datapath are refused with the reason", () => {
    const f32 = noise(one, 128, 128, 13);
    expect(() => gemm({ a: f32, b: f32 })).toThrow(/hopper.*f32.*tf32.*fp32 or exact/);
    const square = new Float8BlockQuantizer({ tile: "128x128" }).quantize(f32);
    expect(() => gemm({ a: square, b: square })).toThrow(/128x128/);
    expect(() => gemm({ a: square, b: square, datapath: "ada" })).toThrow(UnsupportedError);
    const mx = new MXFP8Quantizer().quantize(f32);
    expect(() => gemm({ a: mx, b: new NVFP4Quantizer().quantize(f32) })).toThrow(/does not multiply/);
    expect(() => gemm({ a: mx, b: mx, datapath: "exact", splitK: 2 })).toThrow(/split-K/);
    const plan = { datapath: "hopper-half", splitAccumulator: false, splitK: 1 } as const;
    expect(() =>
      gemm({ a: encode(f32, { format: "e4m3" }), b: encode(f32, { format: "e4m3" }), plan }),
    ).toThrow(/plan is for hopper-half/);
  });

  testInScope("published models say that no hardware here has confirmed them", () => {
    const codes = encode(noise(one, 16, 64, 14), { format: "e4m3" });
    const args = {
      x: { data: codes, traits: { format: "e4m3" } },
      w: { data: codes, traits: { format: "e4m3" } },
      splitAccumulator: false,
      splitK: 1,
      alpha: 1,
      beta: 0,
      out: noise(one, 16, 16, 15),
      outScale: 1,
    } as const;
    expect(one.supports("gemm", { ...args, datapath: "blackwell" })).toMatchObject({
      ok: true,
      unverified: /arXiv/,
    });
    expect(one.supports("gemm", { ...args, datapath: "hopper" })).not.toHaveProperty("unverified");
  });
});

describe("drawn products", () => {
  it("agree with the oracle, and refusals have a reason", async () => {
    const { laws } = await runConformance({
      backend: two,
      operations: ["gemm"],
      runs: draws(150),
      seed: derivedSeed(21),
    });
    const [{ runs, declined, failure } = { runs: 0, declined: [], failure: undefined }] = laws;
    expect(failure).toBeUndefined();
    expect(runs).toBeGreaterThan(draws(150) * 0.8);
    for (const { reason } of declined) expect(reason).toMatch(/^gemm: .*does not multiply|power/);
  });

  it("an infinite block scale multiplies the finite sum of its chain, not each product", () => {
    const scale = (bits: number) => fromCodes("f32", [1, 1], [bits]);
    const operand = (tile: "1x128" | "128x128", codes: readonly number[], scales: PlainTensor) => ({
      source: { kind: "scaled", format: "e5m2", tile } as const,
      codes: fromCodes("e5m2", [1, 2], codes),
      scales,
      lead: 1,
    });
    const input = {
      a: operand("128x128", [0x3c, 0xbc], scale(0x3f800000)),
      b: operand("1x128", [0x40, 0x3c], scale(0x7f800000)),
      layout: "TN",
      datapath: "hopper",
      useSplitAccumulator: false,
      splitK: 1,
      alpha: 1,
      accumulate: false,
      intoOut: false,
      gelu: false,
      biasGradient: false,
      outDtype: "f32",
      outScale: 1,
    } as const;
    const expected = { out: new PlainTensor("f32", [1, 1], Float32Array.of(Number.POSITIVE_INFINITY)) };
    assertSameAnswer(ORACLE.gemm(input) as typeof expected, expected);
    assertSameAnswer(backendSubject(one).gemm(input) as typeof expected, expected);
  });
});
