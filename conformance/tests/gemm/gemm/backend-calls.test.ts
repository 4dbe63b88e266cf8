/**
 * The calls of a product on a backend: each option is passed in the right argument and in no other, and the backend's answer is
 * returned.
 */
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { isGemmOut } from "../../../../src/backends/ops/gemm.js";
import { DTypeError } from "../../../../src/errors.js";
import { factsOf, isSigned } from "../../../../src/formats/derive.js";
import type { GemmAlgorithm } from "../../../../src/formats/gemm-algorithm.js";
import { empty } from "../../../../src/ops/create.js";
import { batchedGemm } from "../../../../src/ops/gemm/batched.js";
import { gemm } from "../../../../src/ops/gemm/gemm.js";
import type { GemmPlan } from "../../../../src/ops/gemm/plan.js";
import { Float8BlockQuantizer } from "../../../../src/quantizers/float8-block.js";
import { MXFP8Quantizer } from "../../../../src/quantizers/mx.js";
import { NVFP4Quantizer } from "../../../../src/quantizers/nvfp4.js";
import { Scope } from "../../../../src/tensor/scope.js";
import { DTYPES, isWide, WIDE_DTYPES } from "../../../../src/tensor/shape.js";
import type { Tensor } from "../../../../src/tensor/tensor.js";
import { draws } from "../../harness/draws.js";
import { useBackend } from "../../harness/suite.js";
import { RecordingBackend } from "../../harness/surface/asked-backend.js";

const reference = useBackend({ threads: 1, datapath: "hopper" });

const STORED: GemmAlgorithm = {
  ...{ library: "cublasLt", version: 130100, id: 66, tile: 20, stages: 36, cluster: 3, innerShape: 0 },
  ...{ swizzle: 0, customOption: 0, splitK: 2, scheme: "none", extent: [16, 16, 256] },
  data: "0000000f".repeat(16),
};

/** The operations that may follow a product. */
const EPILOGUES = ["none", "bias", "gelu", "fused gelu", "gradient of gelu"] as const;

const products = fc.record({
  m: fc.constantFrom(2, 16),
  n: fc.constantFrom(4, 32),
  k: fc.constantFrom(256, 384),
  layout: fc.constantFrom("x and w", "TN", "NN", "NT"),
  operands: fc.constantFrom("bf16", "e4m3"),
  epilogue: fc.constantFrom(...EPILOGUES),
  withBias: fc.boolean(),
  biasDtype: fc.constantFrom(...WIDE_DTYPES),
  biasGradient: fc.boolean(),
  auxDtype: fc.option(fc.constantFrom(...WIDE_DTYPES), { nil: undefined }),
  outDtype: fc.constantFrom(...WIDE_DTYPES, "e4m3", "e5m2"),
  addend: fc.constantFrom("none", "c", "out"),
  givesOut: fc.boolean(),
  alpha: fc.option(fc.constantFrom(0.5, -3, 0), { nil: undefined }),
  beta: fc.option(fc.constantFrom(0.25, -2, 0), { nil: undefined }),
  outScale: fc.option(fc.constantFrom(4, 0.5), { nil: undefined }),
  useSplitAccumulator: fc.option(fc.boolean(), { nil: undefined }),
  splitK: fc.option(fc.constantFrom(1, 2, "auto" as const), { nil: undefined }),
  planned: fc.constantFrom("no", "a plan", "a plan with an algorithm"),
  progress: fc.boolean(),
  unverified: fc.option(fc.constant("nobody measured it"), { nil: undefined }),
  chosen: fc.boolean(),
});

type Product = typeof products extends fc.Arbitrary<infer P> ? P : never;

/** The options of a drawn product, and the expected calls in words. */
function posed(backend: RecordingBackend, drawn: Product) {
  const { m, n, k, layout, operands, epilogue, outDtype } = drawn;
  const names: Record<string, unknown> = {};
  const made = <D extends Parameters<typeof empty>[1]>(
    name: string,
    dtype: D,
    shape: number[],
  ): Tensor<D> => {
    const x = empty(backend, dtype, shape);
    names[name] = x;
    return x;
  };
  const direct = layout === "x and w";
  const w = made("w", operands, direct || layout === "TN" ? [n, k] : [k, n]);
  const x = made("x", operands, layout === "NT" ? [k, m] : [m, k]);
  const pair = direct ? { x, w } : { a: w, b: x, layout: layout as "TN" | "NN" | "NT" };
  const backward = epilogue === "gradient of gelu";
  const gelu = epilogue.endsWith("gelu") && !backward;
  const fused = epilogue === "fused gelu";
  const isFp8 = !isWide(outDtype);
  const hasBias = epilogue === "bias" || (gelu && drawn.withBias);
  const bias = hasBias ? made("bias", drawn.biasDtype, [n]) : undefined;
  const biasGradient = !gelu && !hasBias && drawn.biasGradient;
  const summed = drawn.addend === "out" && isFp8 ? "none" : drawn.addend;
  const c = summed === "c" ? made("c", "f16", [m, n]) : undefined;
  const out = summed === "out" || drawn.givesOut ? made("out", outDtype, [m, n]) : undefined;
  const geluInput = backward ? made("geluInput", "f16", [m, n]) : undefined;
  const progress = drawn.progress ? (): void => {} : undefined;
  Object.assign(names, { progress });
  const beta = summed === "none" ? undefined : drawn.beta;
  const splits = operands === "e4m3" && drawn.useSplitAccumulator === true;
  const algorithm = drawn.planned === "a plan with an algorithm" ? STORED : undefined;
  const datapath = operands === "e4m3" ? "hopper-fp8" : "hopper-half";
  const plan: GemmPlan | undefined =
    drawn.planned === "no"
      ? undefined
      : { datapath, splitAccumulator: splits, splitK: 2, ...(algorithm && { algorithm }) };
  const splitK = plan ? 2 : drawn.splitK;
  const options = {
    ...{ ...pair, bias, biasGradient, c, out, geluInput, progress, beta, plan, gelu },
    ...(summed === "out" ? { accumulate: true } : {}),
    ...(fused ? { geluEpilogue: "fused" as const } : {}),
    ...{ alpha: drawn.alpha, outScale: drawn.outScale, auxDtype: drawn.auxDtype, outDtype },
    ...(plan ? {} : { useSplitAccumulator: drawn.useSplitAccumulator, splitK }),
  };
  return {
    options,
    names,
    backward,
    gelu,
    fused,
    isFp8,
    bias,
    biasGradient,
    summed,
    splits,
    algorithm,
    splitK,
    datapath,
  };
}

/** The expected operations of a drawn product, in the form of `plainly`, derived only from the definition of the options. */
function expected(drawn: Product, at: ReturnType<typeof posed>): readonly unknown[] {
  const { m, n, layout, operands, outDtype, biasDtype } = drawn;
  const { backward, gelu, fused, isFp8, bias, biasGradient, summed, splits, algorithm, splitK } = at;
  const traits = { format: operands };
  const pre = drawn.auxDtype ?? (bias ? biasDtype : isFp8 ? "bf16" : outDtype);
  const outScale = drawn.outScale ?? 1;
  const separate = (gelu && !fused) || backward;
  const transposed = (is: boolean) => (is ? { transposed: true } : {});
  const f32 = "new f32";
  const product = {
    x: { data: "x", ...transposed(layout === "NT"), traits },
    w: { data: "w", ...transposed(layout === "NN" || layout === "NT"), traits },
    datapath: "hopper",
    splitAccumulator: splits,
    splitK: splitK ?? 1,
    ...(algorithm && { algorithm }),
    alpha: drawn.alpha ?? 1,
    beta: summed === "none" ? 0 : (drawn.beta ?? 1),
    ...(summed === "none" ? {} : { c: summed }),
    ...(bias && { bias: "bias" }),
    ...(drawn.progress && { progress: "progress" }),
    ...(fused && { preGelu: "preGelu" }),
    out: !separate ? "out" : backward ? `${f32} [${m},${n}]` : "preGelu",
    outScale: separate ? 1 : outScale,
    ...(isFp8 && !separate && { amax: "amax" }),
  };
  const calls: unknown[] = [{ op: "gemm", args: product }];
  const narrows = backward ? outDtype !== "f32" : isFp8;
  const wide = narrows ? `${f32} [${m},${n}]` : "out";
  if (separate)
    calls.push(
      backward
        ? {
            op: "activationBackward",
            args: { grad: `${f32} [${m},${n}]`, x: "geluInput", kind: "gelu", out: wide },
          }
        : { op: "activation", args: { x: "preGelu", kind: "gelu", out: wide } },
    );
  if (biasGradient) calls.push({ op: "columnSum", args: { x: backward ? wide : "x", out: "biasGradient" } });
  if (separate && isFp8) calls.push({ op: "amax", args: { x: wide, out: "amax" } });
  if (separate && narrows)
    calls.push({
      op: "encode",
      args: {
        ...{
          x: wide,
          word: outDtype === "f32" ? undefined : factsOf(outDtype).word,
          rounding: "tiesToEven",
          out: "out",
        },
        ...{ overflow: isFp8 ? "saturate" : "nonfinite", random: { seed: 0n, offset: 0n } },
        scale: isFp8 ? outScale : 1,
      },
    });
  return [calls, pre];
}

describe("a product", () => {
  it("passes its options to the backend's operations, in this order, and returns the backend's plan and agreement", () => {
    fc.assert(
      fc.property(products, (drawn) => {
        // a bias gradient of codes without a scale is undefined
        const valid = drawn.operands === "e4m3" && drawn.epilogue !== "gradient of gelu";
        using _scope = new Scope();
        const backend = new RecordingBackend(reference());
        const given = valid ? { ...drawn, biasGradient: false } : drawn;
        const at = posed(backend, given);
        const { unverified, chosen } = given;
        backend.answers = { unverified, algorithm: chosen ? STORED : undefined };
        const result = gemm(at.options as Parameters<typeof gemm>[0]);
        const { names, isFp8, gelu, biasGradient, splits, datapath } = at;
        const { out, preGelu, amax, biasGradient: sums } = result;
        const asked = backend.describeCalls({ ...names, out, preGelu, amax, biasGradient: sums });
        const [calls, pre] = expected(given, at) as [unknown, string];
        expect(asked).toEqual(calls);
        expect(result.out.dtype).toBe(given.outDtype);
        expect(result.out.shape).toEqual([given.m, given.n]);
        expect(result.preGelu?.dtype).toBe(gelu ? pre : undefined);
        expect(result.amax?.shape).toEqual(isFp8 ? [1] : undefined);
        expect(result.amax?.dtype).toBe(isFp8 ? "f32" : undefined);
        const sumType = isFp8 ? "f32" : given.outDtype;
        expect(result.biasGradient?.dtype).toBe(biasGradient ? sumType : undefined);
        const algorithm = at.algorithm ?? backend.answers.algorithm;
        const splitK = algorithm?.splitK ?? (at.splitK === "auto" ? 1 : (at.splitK ?? 1));
        const plan = { datapath, splitAccumulator: splits, splitK, ...(algorithm && { algorithm }) };
        expect(result.plan).toEqual(plan);
        expect(result.unverified).toBe(unverified);
        const made = ["out", "plan", gelu && "preGelu", isFp8 && "amax", biasGradient && "biasGradient"];
        expect(Object.keys(result).sort()).toEqual(
          [...made, unverified !== undefined && "unverified"].filter((name) => name !== false).sort(),
        );
      }),
      { numRuns: draws(300) },
    );
  });

  it("of wide operands has their type, of codes f32, and an output of a type that a product cannot have is refused", () => {
    for (const dtype of DTYPES.filter(isSigned)) {
      using _scope = new Scope();
      const backend = new RecordingBackend(reference());
      const x = empty(backend, dtype, [16, 64]);
      const { out } = gemm({ x, w: x, datapath: "exact" });
      expect(out.dtype).toBe(isWide(dtype) ? dtype : "f32");
    }
    for (const dtype of DTYPES.filter((each) => !isGemmOut(each)))
      for (const gelu of [false, true]) {
        using _scope = new Scope();
        const backend = new RecordingBackend(reference());
        const x = empty(backend, "bf16", [16, 64]);
        const out = empty(backend, dtype, [16, 16]);
        expect(() => gemm({ x, w: x, out, gelu }), dtype).toThrow(DTypeError);
        expect(backend.calls).toEqual([]);
      }
  });

  it("of block-scaled operands tells the backend the format of their scales, and whether these are powers of two", () => {
    const [f8, mx, nv] = [new Float8BlockQuantizer(), new MXFP8Quantizer(), new NVFP4Quantizer()];
    const rows = [
      [f8, { format: "f32", lines: 1, length: 128, pow2: true }],
      [
        new Float8BlockQuantizer({ pow2Scales: false }),
        { format: "f32", lines: 1, length: 128, pow2: false },
      ],
      [mx, { format: "e8m0", lines: 1, length: 32, pow2: true }],
      [nv, { format: "e4m3", lines: 1, length: 16, pow2: false }],
    ] as const;
    for (const [quantizer, scales] of rows) {
      using _scope = new Scope();
      const backend = new RecordingBackend(reference());
      const x = quantizer.quantize(empty(backend, "bf16", [128, 128]));
      gemm({ x, w: x });
      const [product] = backend.calls.flatMap(({ op, args }) => (op === "gemm" ? [args] : []));
      for (const operand of [product?.x, product?.w])
        expect(operand?.traits, x.spec.quantizer).toEqual({ format: x.spec.format, scales });
    }
  });

  it("in a batch is one product of all items for the backend", () => {
    const batches = fc.record({
      sizes: fc.tuple(
        fc.integer({ min: 1, max: 3 }),
        fc.integer({ min: 1, max: 5 }),
        fc.integer({ min: 1, max: 5 }),
        fc.constantFrom(128, 192),
      ),
      layout: fc.constantFrom("x and w", "TN", "NN", "NT"),
      dtype: fc.constantFrom("bf16", "f16"),
      outDtype: fc.option(fc.constantFrom(...WIDE_DTYPES), { nil: undefined }),
      givesOut: fc.boolean(),
      alpha: fc.option(fc.constantFrom(0.5, -3, 0), { nil: undefined }),
      planned: fc.constantFrom("no", "a plan", "a plan with an algorithm"),
      unverified: fc.option(fc.constant("nobody measured it"), { nil: undefined }),
    });
    fc.assert(
      fc.property(batches, ({ sizes: [batch, m, n, k], ...drawn }) => {
        using _scope = new Scope();
        const backend = new RecordingBackend(reference());
        backend.answers = { unverified: drawn.unverified };
        const { layout, dtype, planned } = drawn;
        const direct = layout === "x and w";
        const w = empty(backend, dtype, direct || layout === "TN" ? [batch, n, k] : [batch, k, n]);
        const x = empty(backend, dtype, layout === "NT" ? [batch, k, m] : [batch, m, k]);
        const outDtype = drawn.outDtype ?? dtype;
        const out = drawn.givesOut ? empty(backend, outDtype, [batch, m, n]) : undefined;
        const algorithm = planned === "a plan with an algorithm" ? STORED : undefined;
        const fixed = { datapath: "hopper-half", splitAccumulator: false, splitK: 2 } as const;
        const plan = planned === "no" ? undefined : { ...fixed, ...(algorithm && { algorithm }) };
        const pair = direct ? { x, w } : { a: w, b: x, layout };
        const options = { ...pair, out, alpha: drawn.alpha, outDtype: drawn.outDtype, plan };
        const result = batchedGemm(options as Parameters<typeof batchedGemm>[0]);
        const transposed = (is: boolean) => ({ transposed: is });
        expect(backend.describeCalls({ x, w, out: result.out })).toEqual([
          {
            op: "gemm",
            args: {
              x: { data: "x", ...transposed(layout === "NT"), traits: { format: dtype } },
              w: { data: "w", ...transposed(layout === "NN" || layout === "NT"), traits: { format: dtype } },
              ...{ batch, datapath: "hopper", splitAccumulator: false, splitK: plan ? 2 : 1 },
              ...{
                ...(algorithm && { algorithm }),
                alpha: drawn.alpha ?? 1,
                beta: 0,
                out: "out",
                outScale: 1,
              },
            },
          },
        ]);
        if (out) expect(result.out).toBe(out);
        expect([result.out.dtype, ...result.out.shape]).toEqual([outDtype, batch, m, n]);
        const splitK = plan ? 2 : 1;
        expect(result.plan).toEqual({ ...fixed, splitK, ...(algorithm && { algorithm }) });
        expect(result.unverified).toBe(drawn.unverified);
      }),
      { numRuns: draws(200) },
    );
  });
});
