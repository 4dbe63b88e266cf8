/**
 * Products of realistic sizes on a GPU. The reference gives the same bits under the plan that the GPU chose. Small
 * results are compared completely, large ones in a window of rows and columns.
 */
import * as fc from "fast-check";
import { expect, it } from "vitest";
import type { Backend } from "../../../../src/backends/backend.js";
import { UnsupportedError } from "../../../../src/errors.js";
import { tensor } from "../../../../src/ops/create.js";
import { gemm } from "../../../../src/ops/gemm/gemm.js";
import type { GemmOptions } from "../../../../src/ops/gemm/options.js";
import { QuantizedTensor } from "../../../../src/tensor/quantized.js";
import { Scope } from "../../../../src/tensor/scope.js";
import { asMatrix, type WideDType } from "../../../../src/tensor/shape.js";
import type { Tensor } from "../../../../src/tensor/tensor.js";
import { uploadQuantized } from "../../../operations/quantize/quantized.js";
import { assertSame } from "../../../values/difference.js";
import { download, fromCodes, type PlainTensor, upload } from "../../../values/plain.js";
import type { ResultDType } from "../../../values/rounded.js";
import { drawOperand, gridWideValues, PAIRS, type Pair, sizeMultiple } from "../gemm/products.js";
import { describeOnGpu, RUNS, SEED, useGpu } from "./gpu.js";
import { record } from "./record.js";

/** The number of products of each pair: 10 by default, 200 in the long suite (RUNS=10000). */
const PRODUCTS = Math.min(Math.ceil(RUNS / 10), 200);
/** Results with more multiplications than this are compared in a window. */
const MAX_COMPLETE_PRODUCT = 2 ** 24;
const WINDOW = { rows: 32, columns: 128 };

interface ProductCase {
  readonly size: readonly [m: number, n: number, k: number];
  readonly seed: number;
  readonly splitK: 1 | "auto";
  readonly useSplitAccumulator: boolean;
  readonly alpha: number;
  readonly beta: number | undefined;
  readonly cType: WideDType;
  readonly bias: boolean;
  readonly outDtype: ResultDType;
}

function productCases(multiple: number): fc.Arbitrary<ProductCase> {
  const roundDown = (n: number): number => Math.max(multiple, n - (n % multiple));
  const size = (maximum: number): fc.Arbitrary<number> =>
    fc.oneof(
      fc.constantFrom(16, 32, 64, 128, 256, 512, 1024, 2048, 4096).filter((n) => n <= maximum),
      fc.integer({ min: 1, max: maximum }),
      fc.integer({ min: 1, max: Math.min(maximum, 300) }),
    );
  return fc.record({
    size: fc
      .tuple(size(4096), size(4096), size(16384))
      .filter(([m, n, k]) => m * n * k <= 2 ** 35 && (m + n) * k <= 2 ** 24)
      .map(([m, n, k]) => [roundDown(m), roundDown(n), roundDown(k)] as const),
    seed: fc.nat(),
    splitK: fc.constantFrom<1 | "auto">(1, "auto"),
    useSplitAccumulator: fc.boolean(),
    alpha: fc.constantFrom(1, 1, 0.3, -2),
    beta: fc.constantFrom(undefined, undefined, 1, -0.7),
    cType: fc.constantFrom("bf16", "f32", "f16"),
    bias: fc.boolean(),
    outDtype: fc.constantFrom("bf16", "bf16", "f32", "f32", "f16", "e4m3"),
  } as const);
}

/** Rows [first, first + count) of a matrix. */
export function selectRows(x: PlainTensor, first: number, count: number): PlainTensor {
  const [, columns] = x.matrix;
  return fromCodes(x.dtype, [count, columns], x.codes.slice(first * columns, (first + count) * columns));
}

/** Columns [first, first + count) of a matrix. */
export function selectColumns(x: PlainTensor, first: number, count: number): PlainTensor {
  const [rows, columns] = x.matrix;
  const { codes } = x;
  const selected = Array.from({ length: rows * count }, (_, i) =>
    Number(codes[Math.floor(i / count) * columns + first + (i % count)]),
  );
  return fromCodes(x.dtype, [rows, count], selected);
}

/** Copies lines [first, first + count) of an operand to another backend. `first` is a multiple of 128. */
function copyLines(
  backend: Backend,
  operand: Tensor | QuantizedTensor,
  first: number,
  count: number,
): Tensor | QuantizedTensor {
  if (!(operand instanceof QuantizedTensor))
    return upload(backend, selectRows(download(operand), first, count));
  const { data, scaleInv, amax } = operand.copy("rowwise");
  const { tile } = operand.spec;
  const scales = download(scaleInv);
  const height = tile === "128x128" ? 128 : 1;
  return uploadQuantized(backend, operand.spec, [count, asMatrix(operand.shape)[1]], "rowwise", "logical", {
    data: selectRows(download(data), first, count),
    scaleInv: tile === "tensor" ? scales : selectRows(scales, first / height, Math.ceil(count / height)),
    ...(amax ? { amax: download(amax) } : {}),
  });
}

/** The start of the window, a multiple of 128, and its length. */
function comparisonWindow(
  size: number,
  length: number,
  seed: number,
  isComplete: boolean,
): readonly [number, number] {
  if (isComplete || size <= length) return [0, size];
  const start = 128 * (seed % Math.ceil(size / 128));
  return [start, Math.min(length, size - start)];
}

/** Tests drawn products of these pairs. */
export function describeProducts(names: readonly string[]): void {
  describeOnGpu("products on a GPU", () => {
    const { gpu, reference } = useGpu();

    function check([bSource, aSource]: Pair, input: ProductCase): void {
      using _scope = new Scope();
      const { size, seed, beta, cType, bias, ...planOptions } = input;
      const [m, n, k] = size;
      const options = { ...planOptions, datapath: gpu().datapath };
      const [b, a] = [
        drawOperand(gpu(), bSource, [m, k], seed),
        drawOperand(gpu(), aSource, [n, k], seed + 1),
      ];
      const c = beta === undefined ? undefined : gridWideValues(cType, [m, n], seed + 2);
      const biasVector = bias ? gridWideValues("bf16", [n], seed + 3) : undefined;
      const addends = (
        backend: Backend,
        rows: readonly [number, number],
        columns: readonly [number, number],
      ) => ({
        ...(c ? { beta, c: upload(backend, selectColumns(selectRows(c, ...rows), ...columns)) } : {}),
        ...(biasVector
          ? {
              bias: tensor(
                backend,
                biasVector.data.slice(columns[0], columns[0] + columns[1]),
                [columns[1]],
                "bf16",
              ),
            }
          : {}),
      });
      const gpuOptions: GemmOptions = { ...options, a, b, ...addends(gpu(), [0, m], [0, n]) };
      const { out, plan } = gemm(gpuOptions);
      const isComplete = m * n * k <= MAX_COMPLETE_PRODUCT;
      const rows = comparisonWindow(m, WINDOW.rows, seed, isComplete);
      const columns = comparisonWindow(n, WINDOW.columns, seed >>> 8, isComplete);
      const { splitK: _, ...referenceOptions } = options;
      const { out: expectedOut } = gemm({
        ...referenceOptions,
        plan,
        a: copyLines(reference(), a, ...columns),
        b: copyLines(reference(), b, ...rows),
        ...addends(reference(), rows, columns),
      });
      assertSame("out", selectColumns(selectRows(download(out), ...rows), ...columns), download(expectedOut));
    }

    it.each(names)("%s", (name) => {
      const pair = PAIRS[name] as Pair;
      const declined = new Map<string, number>();
      const property = fc.property(productCases(sizeMultiple(pair)), (input) => {
        try {
          check(pair, input);
        } catch (error) {
          if (!(error instanceof UnsupportedError)) throw error;
          declined.set(error.message, (declined.get(error.message) ?? 0) + 1);
        }
      });
      fc.assert(property, { numRuns: PRODUCTS, seed: SEED, endOnFailure: true });
      const reasons = Array.from(declined, ([reason, count]) => ({ reason, count }));
      const runs = PRODUCTS - reasons.reduce((sum, { count }) => sum + count, 0);
      expect(runs).toBeGreaterThan(PRODUCTS / 2);
      record(gpu(), { group: "gemm", name, runs, declined: reasons });
    });
  });
}
