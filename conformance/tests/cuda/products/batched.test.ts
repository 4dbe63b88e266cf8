/**
 * Batched products with the sizes of attention, on a GPU. For a window of the first and of the last item, the reference
 * gives the same bits under the plan that the GPU chose.
 */
import * as fc from "fast-check";
import { expect, it } from "vitest";
import type { Backend } from "../../../../src/backends/backend.js";
import { batchedGemm } from "../../../../src/ops/gemm/batched.js";
import type { GemmLayout } from "../../../../src/ops/gemm/named-operands.js";
import { Scope } from "../../../../src/tensor/scope.js";
import type { WideDType } from "../../../../src/tensor/shape.js";
import { directionsOf } from "../../../operations/gemm/case.js";
import { assertSame } from "../../../values/difference.js";
import { download, fromCodes, type PlainTensor, upload } from "../../../values/plain.js";
import { gridWideValues } from "../../harness/gemm/products.js";
import { describeOnGpu, RUNS, SEED, useGpu } from "../../harness/gpu/gpu.js";
import { selectColumns, selectRows } from "../../harness/gpu/products.js";
import { record } from "../../harness/gpu/record.js";

/** The number of batches of each type: 10 by default, 200 in the long suite (RUNS=10000). */
const BATCHES = Math.min(Math.ceil(RUNS / 10), 200);
const WINDOW = { rows: 16, columns: 64 };
/** The maximum of elements of an operand or result. */
const MAX_ELEMENTS = 2 ** 21;

interface Case {
  readonly size: { readonly rows: number; readonly columns: number; readonly depth: number };
  readonly batch: number;
  readonly layout: GemmLayout;
  readonly alpha: number;
  readonly outDtype: WideDType;
  readonly seed: number;
}

/** Sizes: scores (long by long, over a head), values (long by head, over long), and arbitrary ragged ones. */
const long = fc.constantFrom(128, 256, 384, 512, 1024);
const head = fc.constantFrom(32, 64, 80, 96, 128);
const ragged = fc.integer({ min: 1, max: 300 });
const sizes = fc.oneof(
  fc.record({ rows: long, columns: long, depth: head }),
  fc.record({ rows: long, columns: head, depth: long }),
  fc.record({ rows: ragged, columns: ragged, depth: ragged }),
);

const cases: fc.Arbitrary<Case> = sizes.chain((size) => {
  const { rows, columns, depth } = size;
  const most = Math.floor(MAX_ELEMENTS / Math.max(rows * columns, (rows + columns) * depth));
  return fc.record({
    size: fc.constant(size),
    batch: fc.integer({ min: 2, max: Math.max(2, Math.min(64, most)) }),
    layout: fc.constantFrom<GemmLayout>("TN", "NN", "NT"),
    alpha: fc.constantFrom(1, 0.125, 0.3, -2),
    outDtype: fc.constantFrom<WideDType>("bf16", "f32", "f16"),
    seed: fc.nat(),
  });
});

/** Item `i` of a tensor [batch, rows, columns]. */
function itemOf(x: PlainTensor, i: number): PlainTensor {
  const [, rows = 0, columns = 0] = x.shape;
  return fromCodes(x.dtype, [rows, columns], x.codes.slice(i * rows * columns, (i + 1) * rows * columns));
}

/** Combines matrices of one shape into a batch. */
function batchOf(items: readonly PlainTensor[]): PlainTensor {
  const [first] = items as [PlainTensor];
  const codes = items.flatMap((item) => Array.from(item.codes));
  return fromCodes(first.dtype, [items.length, ...first.shape], codes);
}

describeOnGpu("batches of products on a GPU", () => {
  const { gpu, reference } = useGpu();

  const datapathOf = (dtype: WideDType) => (dtype === "f32" ? "fp32" : gpu().datapath);

  const operands = (dtype: WideDType, { size, batch, layout, seed }: Case) => {
    const { rows, columns, depth } = size;
    const shape = (lines: number, along: boolean) => [batch, ...(along ? [lines, depth] : [depth, lines])];
    const { a, b } = directionsOf(layout);
    return {
      a: gridWideValues(dtype, shape(columns, a === "rowwise"), seed),
      b: gridWideValues(dtype, shape(rows, b === "rowwise"), seed + 1),
    };
  };

  function check(dtype: WideDType, input: Case): void {
    using _scope = new Scope();
    const { size, batch, layout, alpha, outDtype } = input;
    const { a, b } = operands(dtype, input);
    const on = (backend: Backend, pair: { readonly a: PlainTensor; readonly b: PlainTensor }) => ({
      a: upload(backend, pair.a),
      b: upload(backend, pair.b),
      layout,
      alpha,
      outDtype,
    });
    const given = on(gpu(), { a, b });
    const { out, plan } = batchedGemm({ ...given, datapath: datapathOf(dtype) });
    const answer = download(out);
    const again = batchedGemm({ ...given, plan });
    expect(again.plan).toEqual(plan);
    assertSame("out by its own plan", download(again.out), answer);

    const [rows, columns] = [Math.min(WINDOW.rows, size.rows), Math.min(WINDOW.columns, size.columns)];
    const cut = (x: PlainTensor, lines: number, along: boolean) =>
      batchOf([0, batch - 1].map((i) => (along ? selectRows : selectColumns)(itemOf(x, i), 0, lines)));
    const directions = directionsOf(layout);
    const window = {
      a: cut(a, columns, directions.a === "rowwise"),
      b: cut(b, rows, directions.b === "rowwise"),
    };
    const { out: expected } = batchedGemm({ ...on(reference(), window), plan });
    const seen = [0, batch - 1].map((i) => selectColumns(selectRows(itemOf(answer, i), 0, rows), 0, columns));
    assertSame("out", batchOf(seen), download(expected));
  }

  it.each(["bf16", "f16", "f32"] as const)("%s", (dtype) => {
    fc.assert(
      fc.property(cases, (input) => check(dtype, input)),
      { numRuns: BATCHES, seed: SEED, endOnFailure: true },
    );
    record(gpu(), { group: "gemm", name: `batches of ${dtype}`, runs: BATCHES, declined: [] });
  });

  it.each([
    ["bf16", "TN", 8],
    ["bf16", "NN", 7],
    ["f16", "TN", 8],
    ["f16", "NT", 7],
    ["f32", "TN", 8],
    ["f32", "TN", 7],
    ["f32", "NN", 8],
    ["f32", "NT", 7],
  ] as const)("may have more matrices than a grid has blocks: %s %s, K %i", (dtype, layout, depth) => {
    using _scope = new Scope();
    const input = {
      size: { rows: 3, columns: 8, depth },
      batch: 65_535 + 6,
      layout,
      alpha: 1,
      outDtype: dtype,
      seed: 5,
    } as const;
    const { a, b } = operands(dtype, input);
    const on = (backend: Backend) =>
      ({ a: upload(backend, a), b: upload(backend, b), layout, outDtype: dtype }) as const;
    const { out, plan } = batchedGemm({ ...on(gpu()), datapath: datapathOf(dtype) });
    assertSame("out", download(out), download(batchedGemm({ ...on(reference()), plan }).out));
  });

  it("with K in two parts, as their plan says", () => {
    using _scope = new Scope();
    const plan = { datapath: "hopper-half", splitAccumulator: false, splitK: 2 } as const;
    const size = { rows: 128, columns: 64, depth: 320 };
    const input = { size, batch: 6, layout: "NN", alpha: 1, outDtype: "f32", seed: 1 } as const;
    const { a, b } = operands("bf16", input);
    const [actual, expected] = [gpu(), reference()].map((backend) => {
      const given = { a: upload(backend, a), b: upload(backend, b), layout: "NN", plan } as const;
      return download(batchedGemm(given).out);
    });
    assertSame("out", actual as PlainTensor, expected as PlainTensor);
  });
});
