/** Explanations of products agree with `gemm` in every bit, for every pair of operands, datapath, split and epilogue. */
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { UnsupportedError } from "../../../src/errors.js";
import { type ExplainGemmOptions, explainGemm } from "../../../src/explain/gemm.js";
import type { ExplainedSum } from "../../../src/explain/sums.js";
import type { BlockFormatName } from "../../../src/formats/block.js";
import { encode } from "../../../src/ops/cast/cast.js";
import { fromBytes, tensor } from "../../../src/ops/create.js";
import { gemm } from "../../../src/ops/gemm/gemm.js";
import { quantizerNamed } from "../../../src/quantizers/named.js";
import { QuantizedTensor } from "../../../src/tensor/quantized.js";
import { Scope } from "../../../src/tensor/scope.js";
import { elementCount } from "../../../src/tensor/shape.js";
import type { Tensor } from "../../../src/tensor/tensor.js";
import { words } from "../../arbitraries/random.js";
import { gemmCase } from "../../operations/gemm/arbitrary.js";
import { directionsOf, type GemmCase } from "../../operations/gemm/case.js";
import { uploadOperand } from "../../operations/gemm/operand.js";
import {
  compare as compareExactly,
  magnitude,
  minus,
  ofNumber,
  plus,
  powerOfTwo,
  times,
} from "../../oracle/core/rational.js";
import { download, fromCodes, type PlainTensor, upload } from "../../values/plain.js";
import { fromBits } from "../../values/values.js";
import { draws } from "../harness/draws.js";
import { useBackend } from "../harness/suite.js";

const backend = useBackend();

/** The options of the drawn product, without further operations. */
function optionsOf(drawnCase: GemmCase): Omit<ExplainGemmOptions, "at"> {
  const { a, b, layout, c, bias } = drawnCase;
  const directions = directionsOf(layout);
  const uploadIfDefined = (x: PlainTensor<"f32" | "bf16" | "f16"> | undefined) => x && upload(backend(), x);
  const { datapath, useSplitAccumulator, splitK, alpha, beta, outDtype, outScale } = drawnCase;
  return {
    a: uploadOperand(backend(), a, directions.a),
    b: uploadOperand(backend(), b, directions.b),
    layout,
    ...{ datapath, useSplitAccumulator, splitK, alpha, outDtype, outScale },
    ...(c ? { c: uploadIfDefined(c), beta } : {}),
    bias: uploadIfDefined(bias),
  };
}

/** Checks that the parts of a sum are consistent, for every datapath. */
function requireConsistent(sum: ExplainedSum): void {
  if (sum.kind !== "tensorCore") return;
  for (const { chains } of sum.splits) {
    for (const { dotAdds } of chains) {
      let previousEnd = 0;
      for (const {
        accumulator,
        terms,
        grid,
        sum: keptSum,
        result,
        from: kBegin,
        to: kEnd,
        exact,
      } of dotAdds) {
        expect(accumulator.value).toBe(previousEnd);
        previousEnd = result;
        expect(terms.flatMap(({ products }) => products.map(({ k }) => k))).toEqual(
          Array.from({ length: kEnd - kBegin }, (_, i) => kBegin + i),
        );
        if (grid === undefined) continue;
        let total = accumulator.kept;
        for (const { value, kept, cut } of [...terms, accumulator]) {
          expect(kept + cut).toBe(value);
          expect(Math.abs(cut)).toBeLessThan(2 ** grid);
          expect(Number.isInteger(kept / 2 ** grid)).toBe(true);
        }
        for (const { kept } of terms) total += kept;
        expect(keptSum).toBe(total);
        const exactSum = [accumulator, ...terms].map(({ value }) => ofNumber(value)).reduce(plus);
        // the nearest f64 of a sum that may have more bits
        const distance = magnitude(minus(exactSum, ofNumber(exact)));
        expect(compareExactly(distance, times(magnitude(exactSum), powerOfTwo(-53)))).toBeLessThanOrEqual(0);
      }
    }
  }
}

function compare(drawnCase: GemmCase, drawnIndex: number): boolean {
  using _scope = new Scope();
  const options = optionsOf(drawnCase) as ExplainGemmOptions;
  let result: ReturnType<typeof gemm>;
  try {
    result = gemm(options);
  } catch (error) {
    if (!(error instanceof UnsupportedError)) throw error;
    expect(() => explainGemm({ ...options, at: [0, 0] })).toThrow();
    return false;
  }
  const { out, plan, unverified } = result;
  const count = elementCount(out.shape);
  if (count === 0) return false;
  let remainingIndex = drawnIndex % count;
  const index = remainingIndex;
  const position = out.shape
    .toReversed()
    .map((size) => {
      const index = remainingIndex % size;
      remainingIndex = Math.floor(remainingIndex / size);
      return index;
    })
    .toReversed();
  const explanation = explainGemm({ ...options, at: position });
  expect(explanation.out.dtype).toBe(out.dtype);
  expect(explanation.out.code).toBe(download(out).codes[index]);
  expect(explanation.plan).toEqual(plan);
  expect(explanation.unverified).toBe(unverified);
  requireConsistent(explanation.sum);
  return true;
}

describe("explanations of products", () => {
  it("have the bits of gemm, and what is kept and cut of each term is the term", () => {
    fc.assert(
      fc.property(gemmCase(), fc.nat(1 << 20), (drawnCase, drawnIndex) => {
        compare(drawnCase, drawnIndex);
      }),
      { numRuns: draws(500) },
    );
  });

  it.each([
    ["1x128", "1x128", 1],
    ["1x128", "1x128", 2],
    ["1x128", "128x128", 1],
    ["128x128", "1x128", 1],
  ] as const)("have the bits of gemm for FP8 scaled %s by %s in %i splits", (tileX, tileW, splitK) => {
    fc.assert(
      fc.property(fc.integer(), (seed) => {
        using _scope = new Scope();
        const depth = 384;
        const operand = (tile: "1x128" | "128x128", scale: number) => {
          const codes = words(scale, 16 * depth).map(
            (word) => ((word & 0xff) % 0x7f) | ((word >>> 8) & 0x80),
          );
          const blocks = tile === "1x128" ? [16, depth / 128] : [1, depth / 128];
          const scales = words(scale + 1, (blocks[0] as number) * (blocks[1] as number)).map(
            (word) => (word & 0x7fffff) | ((((word >>> 23) % 5) + 125) << 23),
          );
          return {
            data: upload(backend(), fromCodes("e4m3", [16, depth], codes)),
            scaleInv: upload(backend(), fromCodes("f32", blocks, scales)),
            tile,
          };
        };
        const options = {
          x: operand(tileX, seed),
          w: operand(tileW, seed ^ 0x5555),
          datapath: "hopper",
          outDtype: "f32",
          splitK,
        } as const;
        const { codes } = download(gemm(options).out);
        for (let i = 0; i < 16; i++)
          expect(explainGemm({ ...options, at: [i, 15 - i] }).out.code).toBe(codes[i * 16 + 15 - i]);
      }),
      { numRuns: draws(5) },
    );
  });

  /** A product of alpha and both amaxes that depends on their order. */
  const ROUNDED_TWICE = {
    x: { amax: 0.007812500931322575, rowScaled: false, seed: 0 },
    w: { amax: 0.01210834737867117, rowScaled: false, seed: 0 },
    alpha: 0.008453495800495148,
    datapath: "hopper",
  } as const;

  it("have the bits of gemm for alphas and amaxes whose products are rounded", () => {
    // numbers with fractions of 23 bits
    const number = fc
      .tuple(fc.nat(0x7fffff), fc.integer({ min: 120, max: 134 }))
      .map(([fraction, exponent]) => fromBits(((exponent << 23) | fraction) >>> 0));
    const operand = fc.record({
      amax: number,
      rowScaled: fc.constantFrom(false, false, true),
      seed: fc.integer(),
    });
    const cases = fc.record({
      ...{ x: operand, w: operand, alpha: number, datapath: fc.constantFrom("hopper", "blackwell", "exact") },
    });
    fc.assert(
      fc.property(cases, ({ x, w, ...settings }) => {
        using _scope = new Scope();
        const [a, b] = [x, w].map(({ amax, rowScaled, seed }) => {
          const nvfp4Operand = operandOf("nvfp4", seed, { rowScaled });
          (nvfp4Operand as QuantizedTensor).rowwise?.amax?.write(Float32Array.of(amax));
          return nvfp4Operand;
        }) as [QuantizedTensor, QuantizedTensor];
        const options = { x: a, w: b, ...settings, outDtype: "f32" } as const;
        expect(explainGemm({ ...options, at: [0, 0] }).out.code).toBe(download(gemm(options).out).codes[0]);
      }),
      { numRuns: draws(300, 12), examples: [[ROUNDED_TWICE]] },
    );
  });

  it.each([
    ["bf16", ["hopper", "ada", "blackwell", "fp32", "exact"], [1, 2, 3]],
    ["e4m3", ["hopper", "ada", "blackwell", "fp32", "exact"], [1, 2]],
    ["fp8-current", ["hopper", "fp32", "exact"], [1, 3]],
    ["fp8-block", ["hopper", "fp32", "exact"], [1, 2]],
    ["mxfp8", ["hopper", "ada", "blackwell", "fp32", "exact"], [1]],
    ["nvfp4", ["hopper", "ada", "blackwell", "fp32", "exact"], [1]],
  ] as const)(
    "have the sums along K of %s operands: each total is the sum whose further elements are 0",
    (operands, families, splits) => {
      const cases = fc.record({
        seed: fc.integer(),
        datapath: fc.constantFrom(...families),
        splitK: fc.constantFrom(...splits),
        useSplitAccumulator: fc.boolean(),
        drawnIndex: fc.nat(),
      });
      fc.assert(
        fc.property(cases, ({ seed, drawnIndex, ...settings }) => {
          using _scope = new Scope();
          const { datapath } = settings;
          const splitK = datapath === "hopper" ? settings.splitK : 1;
          const options = { ...settings, splitK, outDtype: "f32" } as const;
          const [x, w] = [operandOf(operands, seed), operandOf(operands, seed + 1)];
          const totals = totalsOf(explainGemm({ x, w, at: [0, 0], ...options }).sum);
          const [end, total] = totals[drawnIndex % totals.length] as readonly [number, number];
          const maskedOptions = { x: maskAfter(x, end), w, ...options };
          const explanation = explainGemm({ ...maskedOptions, at: [0, 0] });
          expect(total).toBe(explanation.sum.value);
          expect(explanation.out.code).toBe(download(gemm(maskedOptions).out).codes[0]);
          expect(totals.at(-1)).toEqual([DEPTH, explainGemm({ x, w, at: [0, 0], ...options }).sum.value]);
        }),
        { numRuns: draws(30) },
      );
    },
  );
});

describe("explanations of products with addends", () => {
  it.each([
    ["bf16", false, false],
    ["nvfp4", false, false],
    ["nvfp4", true, false],
    ["nvfp4", false, true],
    ["nvfp4", true, true],
  ] as const)("have the bits of gemm: %s, amaxes of rows %s and %s", (kind, ofX, ofW) => {
    const cases = fc.record({
      seed: fc.integer(),
      splitK: fc.constantFrom(1, kind === "bf16" ? 2 : 1),
      beta: fc.constantFrom(0, 1, 0.3),
      alpha: fc.constantFrom(1, 0.7),
      outDtype: fc.constantFrom("f32" as const, "bf16" as const),
    });
    fc.assert(
      fc.property(cases, ({ seed, ...settings }) => {
        using _scope = new Scope();
        const x = operandOf(kind, seed, { rowScaled: ofX });
        const w = operandOf(kind, seed + 1, { rowScaled: ofW });
        const c = tensor(backend(), Float32Array.of(1 + (seed % 1000) / 7), [1, 1]);
        const bias = tensor(backend(), Float32Array.of((seed % 100) / 3), [1]);
        const addends = { c: settings.outDtype === "f32" ? c : encode(c, { format: "bf16" }) };
        const options = { x, w, ...addends, ...settings, bias, datapath: "hopper" } as const;
        expect(explainGemm({ ...options, at: [0, 0] }).out.code).toBe(download(gemm(options).out).codes[0]);
      }),
      { numRuns: draws(60, 12) },
    );
  });
});

describe("the factors of a product", () => {
  it("have the stored bits of the operands, and a sum beyond f32 is an infinity of its sign", () => {
    using _scope = new Scope();
    for (const sign of [1, -1])
      for (const format of ["f32", "bf16"] as const)
        for (const datapath of ["hopper", "blackwell", "exact", "fp32"] as const) {
          // tensor cores do not multiply f32
          if (format === "f32" && (datapath === "hopper" || datapath === "blackwell")) continue;
          const values = Float32Array.from({ length: 32 }, (_, k) => (k + 0.5) * 2 ** 80);
          const [a, b] = [1, sign].map((factor) => {
            const x = tensor(
              backend(),
              values.map((value) => value * factor),
              [1, 32],
            );
            return format === "f32" ? x : encode(x, { format });
          }) as [Tensor, Tensor];
          const options = { x: a, w: b, datapath, outDtype: "f32" } as const;
          const { sum, out } = explainGemm({ ...options, at: [0, 0] });
          expect(out.value).toBe(sign * Number.POSITIVE_INFINITY);
          expect(out.code).toBe(download(gemm(options).out).codes[0]);
          const products =
            sum.kind === "tensorCore"
              ? sum.splits.flatMap(({ chains }) =>
                  chains.flatMap(({ dotAdds }) =>
                    dotAdds.flatMap(({ terms }) => terms.flatMap(({ products }) => products)),
                  ),
                )
              : sum.products;
          expect(products.map(({ x }) => x.code)).toEqual(Array.from(download(a).codes));
          expect(products.map(({ w }) => w.code)).toEqual(Array.from(download(b).codes));
        }
  });
});

const DEPTH = 384;

/** One row of operands: codes, or the tensor of a quantizer. */
function operandOf(
  kind: "bf16" | "e4m3" | BlockFormatName,
  seed: number,
  options: { readonly rowScaled?: boolean } = {},
): Tensor | QuantizedTensor {
  const values = Float32Array.from(words(seed, DEPTH), (word) => {
    const scale = word % 11 === 0 ? 2 ** 7 : 1;
    return ((word >>> 8) / 2 ** 23 - 1) * scale;
  });
  const x = tensor(backend(), values, [1, DEPTH]);
  if (kind === "bf16" || kind === "e4m3") return encode(x, { format: kind });
  return quantizerNamed(kind, options).quantize(x);
}

/** The operand with zeros from an index of K on. */
function maskAfter(x: Tensor | QuantizedTensor, end: number): Tensor | QuantizedTensor {
  const data = x instanceof QuantizedTensor ? x.copy("rowwise").data : x;
  const codes = data.dataSync();
  const bytes = new Uint8Array(codes.buffer, codes.byteOffset, codes.byteLength).slice();
  const bits = (8 * bytes.length) / DEPTH;
  for (let k = end; k < DEPTH; k++)
    if (bits >= 8) bytes.fill(0, (k * bits) / 8, ((k + 1) * bits) / 8);
    else bytes[k >> 1] = (bytes[k >> 1] as number) & (k % 2 === 0 ? 0xf0 : 0x0f);
  const zeroedData = fromBytes(data.backend, bytes, data.shape, data.dtype);
  if (!(x instanceof QuantizedTensor)) return zeroedData;
  const { spec, shape, dtype, scaleLayout, quantizer: ops } = x;
  return new QuantizedTensor({
    spec,
    shape,
    dtype,
    scaleLayout,
    ops,
    rowwise: { ...x.copy("rowwise"), data: zeroedData },
  });
}

/** The ends of steps and products, and the partial sums there. */
function totalsOf(sum: ExplainedSum): readonly (readonly [end: number, total: number])[] {
  if (sum.kind !== "tensorCore") return sum.products.map(({ k, total }) => [k + 1, total]);
  return sum.splits.flatMap(({ chains }) =>
    chains.flatMap(({ dotAdds }) => dotAdds.map(({ to, total }) => [to, total] as const)),
  );
}
