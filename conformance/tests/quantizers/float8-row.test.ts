/**
 * Row scales: each row is quantized as a separate tensor, each column of the columnwise copy likewise, and products apply row
 * scales as they apply tensor scales.
 */
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { BLOCK_FORMATS } from "../../../src/formats/block.js";
import { factsOf } from "../../../src/formats/derive.js";
import { castTo } from "../../../src/ops/cast/cast.js";
import { tensor } from "../../../src/ops/create.js";
import { gemm } from "../../../src/ops/gemm/gemm.js";
import { transpose } from "../../../src/ops/layout/layout.js";
import { quantizerNamed } from "../../../src/quantizers/named.js";
import type { QuantizeSpec } from "../../../src/tensor/quantized.js";
import { Scope } from "../../../src/tensor/scope.js";
import type { Tensor } from "../../../src/tensor/tensor.js";
import { wideMatrix } from "../../arbitraries/matrices.js";
import { quantizeSpec, specsOf } from "../../arbitraries/specs.js";
import { wideType } from "../../arbitraries/wide.js";
import type { Operation } from "../../operations/operation.js";
import {
  activationQuantizeCase,
  activationQuantizeOperation,
} from "../../operations/quantize/activation-quantize.js";
import {
  biasGradQuantizeCase,
  biasGradQuantizeOperation,
} from "../../operations/quantize/bias-grad-quantize.js";
import { dequantizeCase, dequantizeOperation } from "../../operations/quantize/dequantize.js";
import { normQuantizeCase, normQuantizeOperation } from "../../operations/quantize/norm-quantize.js";
import { quantizeCase, quantizeOperation } from "../../operations/quantize/quantize.js";
import { SpecQuantizer } from "../../operations/quantize/quantized.js";
import { assertSame } from "../../values/difference.js";
import { download, fromCodes, type PlainTensor, upload } from "../../values/plain.js";
import { draws, drawsOr } from "../harness/draws.js";
import { useBackend } from "../harness/suite.js";

const backend = useBackend();
const NAME = "fp8-row";
const ROWWISE = { rowwise: true, columnwise: false, scaleLayout: "logical" } as const;
const COLUMNWISE = { rowwise: false, columnwise: true, scaleLayout: "logical" } as const;

/** The specs of row scaling that per-tensor FP8 also has. */
const OF_TENSORS = specsOf(NAME).filter(
  ({ scaleRule, amaxLimit }) =>
    amaxLimit === 0 && BLOCK_FORMATS["fp8-current"].rules.some((rule) => rule === scaleRule),
);
/** Lengths of lines below, at and above the number of elements that are read at once: 32768, or 2048 of each of 16 lines. */
const LENGTHS = [1, 3, 130, 2047, 2048, 2049, 4100, 32767, 32769, 65540] as const;

/** Elements of any magnitude that occurs in a tensor. Lines have different magnitudes, and large elements at their ends. */
function lineOf(length: number, seed: number): Float32Array {
  return Float32Array.from({ length }, (_, i) => {
    const value = Math.sin((i + 1) * (seed + 1)) * 2 ** ((seed % 9) - 4);
    return i === length - 1 - (seed % 3) ? 3 * value : value;
  });
}

const sameBytes = (a: Tensor, b: Tensor): void => expect(download(a).data).toEqual(download(b).data);
const perTensor = ({ format, scaleRule, elementScaling, pow2Scales, amaxEpsilon }: QuantizeSpec) =>
  quantizerNamed("fp8-current", { format, scaleRule, elementScaling, pow2Scales, amaxEpsilon });

describe("a row", () => {
  it("is quantized as a tensor of its own, whatever its length", () => {
    const choices = fc.tuple(
      fc.constantFrom(...OF_TENSORS),
      fc.constantFrom(...LENGTHS),
      fc.integer({ min: 1, max: 3 }),
      fc.nat({ max: 1000 }),
    );
    fc.assert(
      fc.property(choices, ([spec, length, rows, seed]) => {
        using _scope = new Scope();
        const lines = Array.from({ length: rows }, (_, i) => lineOf(length, seed + i));
        const x = tensor(backend(), Float32Array.from(lines.flatMap((line) => [...line])), [rows, length]);
        const { data, scaleInv } = new SpecQuantizer(spec, ROWWISE).quantize(x).copy("rowwise");
        lines.forEach((line, i) => {
          const separateQuantized = perTensor(spec)
            .quantize(tensor(backend(), line, [1, length]))
            .copy("rowwise");
          sameBytes(data.slice(i * length, [1, length]), separateQuantized.data);
          sameBytes(scaleInv.slice(i, [1]), separateQuantized.scaleInv);
        });
      }),
      { numRuns: draws(25) },
    );
  });

  it("of a columnwise copy is a row of the transpose", () => {
    const choices = quantizeSpec([NAME]).chain((spec) =>
      fc
        .tuple(fc.constantFrom(1, 2, 17, 33, 300), fc.constantFrom(1, 5, 16, 31, 70), wideType())
        .chain(([rows, columns, dtype]) =>
          fc.tuple(
            fc.constant(spec),
            wideMatrix({ dtype, shape: [rows, columns], block: 0, max: factsOf(spec.format).max }),
          ),
        ),
    );
    fc.assert(
      fc.property(choices, ([spec, x]) => {
        using _scope = new Scope();
        const input = upload(backend(), x);
        const columns = new SpecQuantizer(spec, COLUMNWISE).quantize(input).copy("columnwise");
        const rows = new SpecQuantizer(spec, ROWWISE).quantize(transpose(input)).copy("rowwise");
        for (const member of ["data", "scaleInv"] as const)
          assertSame(member, download(columns[member]), download(rows[member]));
      }),
      { numRuns: draws(150) },
    );
  });

  it("of a columnwise copy may be longer than what is read at once", () => {
    using _scope = new Scope();
    for (const length of [2047, 2048, 2049, 6000]) {
      const lines = Array.from({ length: 19 }, (_, i) => lineOf(length, i));
      const x = tensor(backend(), Float32Array.from(lines.flatMap((line) => [...line])), [19, length]);
      const [spec] = specsOf(NAME) as [QuantizeSpec];
      const rows = new SpecQuantizer(spec, ROWWISE).quantize(x).copy("rowwise");
      const columns = new SpecQuantizer(spec, COLUMNWISE).quantize(transpose(x)).copy("columnwise");
      sameBytes(rows.data, columns.data);
      sameBytes(rows.scaleInv, columns.scaleInv);
    }
  });

  it("has no scale if it has no elements", () => {
    using _scope = new Scope();
    const quantizedTensor = quantizerNamed(NAME, { columnwise: true }).quantize(
      tensor(backend(), [], [3, 0]),
    );
    expect(quantizedTensor.copy("rowwise").scaleInv.shape).toEqual([3, 0]);
    expect(quantizedTensor.copy("columnwise").scaleInv.shape).toEqual([0, 1]);
  });
});

describe("the limit of the amax", () => {
  it("changes no row whose amax is within it, and gives all others the scale of the limit", () => {
    const limit = 1200;
    const choices = fc.tuple(
      fc.constantFrom(
        ...specsOf(NAME).filter(({ amaxLimit, amaxEpsilon }) => amaxLimit === 0 && amaxEpsilon <= 1),
      ),
      fc.array(fc.constantFrom(0, 1, 1199.5, 1200, 1201, 5000, 2 ** 100), { minLength: 1, maxLength: 8 }),
      fc.constantFrom("f32", "bf16", "f16"),
    );
    fc.assert(
      fc.property(choices, ([spec, amaxes, dtype]) => {
        using _scope = new Scope();
        const withAmaxes = (values: readonly number[]): Tensor =>
          castTo(
            tensor(
              backend(),
              values.flatMap((value) => [value, -value / 3, 1]),
              [values.length, 3],
            ),
            dtype,
          );
        const quantizerWith = (amaxLimit: number) => new SpecQuantizer({ ...spec, amaxLimit }, ROWWISE);
        const boundedScales = quantizerWith(limit).quantize(withAmaxes(amaxes)).copy("rowwise").scaleInv;
        sameBytes(
          boundedScales,
          quantizerWith(0)
            .quantize(withAmaxes(amaxes.map((amax) => Math.min(amax, limit))))
            .copy("rowwise").scaleInv,
        );
      }),
      { numRuns: draws(200) },
    );
  });
});

const POWERS = fc.integer({ min: -20, max: 20 }).map((exponent) => 2 ** exponent);

describe("a product", () => {
  it("of rows that have one power of two as their scale is that of tensors that have it", () => {
    const choices = fc.tuple(
      fc.constantFrom("hopper", "exact", "fp32", "ada", "blackwell"),
      fc.integer({ min: 1, max: 20 }),
      fc.integer({ min: 1, max: 300 }),
      fc.tuple(POWERS, POWERS),
      fc.constantFrom(1, -0.3, 0),
      fc.constantFrom(0, 0.7),
      fc.boolean(),
    );
    fc.assert(
      fc.property(choices, ([datapath, lines, depth, scales, alpha, beta, isMixed]) => {
        using _scope = new Scope();
        const codes = (codesFrom: number, count: number): Tensor =>
          upload(
            backend(),
            fromCodes(
              "e4m3",
              [count, depth],
              Array.from({ length: count * depth }, (_, i) => ((i * 37 + codesFrom) * 13) % 127),
            ),
          );
        const [x, w] = [codes(1, lines), codes(2, 7)];
        const addend =
          beta === 0 ? {} : { beta, c: tensor(backend(), new Float32Array(lines * 7).fill(0.1), [lines, 7]) };
        const scaledTensor = (data: Tensor, scale: number) => ({
          data,
          scaleInv: tensor(backend(), [scale]),
        });
        const rows = (data: Tensor, count: number, scale: number) => ({
          data,
          scaleInv: tensor(backend(), new Float32Array(count).fill(scale), [count, 1]),
          tile: "1xK" as const,
        });
        const options = { datapath, alpha, ...addend, outDtype: "f32" } as const;
        const expected = gemm({
          ...options,
          x: scaledTensor(x, scales[0]),
          w: scaledTensor(w, scales[1]),
        }).out;
        const otherOperand = isMixed ? scaledTensor(w, scales[1]) : rows(w, 7, scales[1]);
        const result = gemm({ ...options, x: rows(x, lines, scales[0]), w: otherOperand }).out;
        assertSame("out", download(result), download(expected));
      }),
      { numRuns: draws(100) },
    );
  });
});

const RUNS = drawsOr(60);

function itAgrees<I>(name: string, arbitrary: fc.Arbitrary<I>, { run, oracle }: Operation<I>): void {
  it(`${name} is bitwise equal to the oracle`, () => {
    fc.assert(
      fc.property(arbitrary, (input) => {
        using _scope = new Scope();
        const [actual, expected] = [run(backend(), input), oracle(input)];
        expect(Object.keys(actual).sort()).toEqual(Object.keys(expected).sort());
        for (const [field, expectedField] of Object.entries(expected))
          assertSame(field, actual[field] as PlainTensor, expectedField as PlainTensor);
      }),
      { numRuns: RUNS },
    );
  });
}

describe("with scales of rows", () => {
  itAgrees("quantize", quantizeCase([NAME]), quantizeOperation);
  itAgrees("dequantize", dequantizeCase(undefined, [NAME]), dequantizeOperation);
  itAgrees("activationQuantize", activationQuantizeCase([NAME]), activationQuantizeOperation);
  itAgrees("normQuantize", normQuantizeCase([NAME]), normQuantizeOperation);
  itAgrees("biasGradQuantize", biasGradQuantizeCase([NAME]), biasGradQuantizeOperation);
});
