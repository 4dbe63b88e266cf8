/**
 * Products with row-scaled NVFP4 equal TransformerEngine's `general_gemm`: a product of the same codes under amaxes of 1, into
 * f32, whose elements are then multiplied by the amaxes (numerics.md §5.10).
 */
import * as fc from "fast-check";
import { expect, it } from "vitest";
import { explainGemm } from "../../../../src/explain/gemm.js";
import { tensor } from "../../../../src/ops/create.js";
import { gemm } from "../../../../src/ops/gemm/gemm.js";
import { NVFP4Quantizer } from "../../../../src/quantizers/nvfp4.js";
import { type CopyTensors, type Direction, QuantizedTensor } from "../../../../src/tensor/quantized.js";
import { Scope } from "../../../../src/tensor/scope.js";
import type { WideDType } from "../../../../src/tensor/shape.js";
import { wideMatrix } from "../../../arbitraries/matrices.js";
import { assertSameAnswer } from "../../../laws/laws.js";
import { download, type PlainTensor, upload, wideValues } from "../../../values/plain.js";
import { rounded } from "../../../values/rounded.js";
import { drawsOr } from "../../harness/draws.js";
import { useBackend } from "../../harness/suite.js";

const RUNS = drawsOr(150);
const backend = useBackend({});
const { fround } = Math;

interface Case {
  readonly x: PlainTensor<WideDType>;
  readonly w: PlainTensor<WideDType>;
  readonly rowScaled: readonly [x: boolean, w: boolean];
  readonly layout: "TN" | "NN" | "NT";
  readonly datapath: "exact" | "fp32" | "hopper" | "blackwell";
  readonly out: WideDType;
  readonly alpha: number;
  readonly bias: boolean;
  readonly beta: number;
}

const LINES = [1, 2, 15, 16, 17, 33];

const cases: fc.Arbitrary<Case> = fc
  .record({
    rows: fc.constantFrom(...LINES),
    columns: fc.constantFrom(...LINES),
    depth: fc.constantFrom(16, 48, 80),
    layout: fc.constantFrom("TN" as const, "NN" as const, "NT" as const),
  })
  .chain(({ rows, columns, depth, layout }) => {
    // a copy along columns takes any number of rows, and each matrix has whole blocks along its rows
    const up = (n: number): number => Math.ceil(n / 16) * 16;
    const [m, n] = [layout === "NT" ? up(rows) : rows, layout === "TN" ? columns : up(columns)];
    const values = (lines: number, turned: boolean) =>
      wideMatrix({ dtype: "bf16", shape: turned ? [depth, lines] : [lines, depth], block: 16, max: 6 });
    return fc.record({
      x: values(m, layout === "NT"),
      w: values(n, layout !== "TN"),
      rowScaled: fc.constantFrom([true, true] as const, [true, false] as const, [false, true] as const),
      layout: fc.constant(layout),
      datapath: fc.constantFrom("exact" as const, "fp32" as const, "hopper" as const, "blackwell" as const),
      out: fc.constantFrom<WideDType>("f32", "bf16", "f16"),
      alpha: fc.constantFrom(1, 0.3, -2),
      bias: fc.boolean(),
      beta: fc.constantFrom(0, 1, 0.7),
    });
  });

/** A quantized tensor whose copies have the codes and scales of `t` and the amax 1, and the amaxes of its copy. */
function underOne(t: QuantizedTensor, direction: Direction): readonly [QuantizedTensor, Float32Array] {
  const { spec, shape, dtype, scaleLayout, quantizer } = t;
  const { data, scaleInv, amax } = t.copy(direction);
  const copy: CopyTensors = { data, scaleInv, amax: tensor(t.backend, [1]) };
  const fields = { spec: { ...spec, rowScaled: false }, shape, dtype, scaleLayout, ops: quantizer };
  return [new QuantizedTensor({ ...fields, [direction]: copy }), amax?.dataSync() as Float32Array];
}

const randomly = (count: number, seed: number): Float32Array =>
  Float32Array.from({ length: count }, (_, i) => fround(Math.sin(seed + i) * 3));

/** The elements computed by general_gemm's own steps, rounded to `out`. */
function byTheirSteps(
  given: Case,
  operands: readonly QuantizedTensor[],
  bias?: Float32Array,
  c?: Float32Array,
) {
  const { layout, datapath, alpha, beta, out } = given;
  const [x, w] = operands as [QuantizedTensor, QuantizedTensor];
  const [b, ofX] = underOne(x, layout === "NT" ? "columnwise" : "rowwise");
  const [a, ofW] = underOne(w, layout === "TN" ? "rowwise" : "columnwise");
  const product = gemm({ a, b, layout, datapath, alpha, outDtype: "f32" }).out;
  const [rows, columns] = product.shape as [number, number];
  const values = Array.from(product.dataSync() as Float32Array, (p, i) => {
    const [m, n] = [Math.floor(i / columns), i % columns];
    const at = (amaxes: Float32Array, line: number) => amaxes[amaxes.length === 1 ? 0 : line] as number;
    const folds = ofX.length === 1 || ofW.length === 1;
    const scaled = folds
      ? fround(p * fround(at(ofX, m) * at(ofW, n)))
      : fround(fround(p * at(ofX, m)) * at(ofW, n));
    return bias ? fround(scaled + (bias[n] as number)) : scaled;
  });
  const once = rounded(out, [rows, columns], values, 1);
  if (!c) return once;
  const sums = Array.from(wideValues(once as PlainTensor<WideDType>), (y, i) =>
    fround(fround(fround(beta) * (c[i] as number)) + y),
  );
  return rounded(out, [rows, columns], sums, 1);
}

it("multiply the f32 product by the amaxes of rows and columns, add the bias, round, and add C", () => {
  fc.assert(
    fc.property(cases, (given) => {
      using _scope = new Scope();
      const { x, w, rowScaled, layout, datapath, out, alpha, beta } = given;
      const quantized = [x, w].map((each, i) =>
        new NVFP4Quantizer({ rowScaled: rowScaled[i] as boolean, columnwise: true }).quantize(
          upload(backend(), each),
        ),
      ) as [QuantizedTensor, QuantizedTensor];
      const [m, n] = [
        layout === "NT" ? x.matrix[1] : x.matrix[0],
        layout === "TN" ? w.matrix[0] : w.matrix[1],
      ] as const;
      const bias = given.bias ? randomly(n, 1) : undefined;
      const c = beta === 0 ? undefined : randomly(m * n, 2);
      const options = {
        ...{ b: quantized[0], a: quantized[1], layout, datapath, alpha, outDtype: out },
        ...(bias && { bias: tensor(backend(), bias) }),
        ...(c && { c: tensor(backend(), c, [m, n]), beta }),
      };
      const made = download(gemm(options).out);
      const expected = byTheirSteps(given, quantized, bias, c);
      assertSameAnswer({ out: made }, { out: expected });
      const at = [m - 1, n - 1];
      const { value } = explainGemm({ ...options, at }).out;
      expect(value).toBe(wideValues(made as PlainTensor<WideDType>)[m * n - 1]);
    }),
    { numRuns: RUNS },
  );
});

it("multiply by the amax of the row of x before that of the row of w, unless there is one of either", () => {
  using _scope = new Scope();
  const matrix = (rows: readonly number[]) =>
    tensor(
      backend(),
      Float32Array.from(rows.flatMap((first) => [first, first / 2, ...new Array<number>(14).fill(0)])),
      [rows.length, 16],
    );
  const quantizer = new NVFP4Quantizer({ rowScaled: true });
  const run = (x: readonly number[], w: readonly number[]) =>
    gemm({
      ...{ x: quantizer.quantize(matrix(x)), w: quantizer.quantize(matrix(w)) },
      ...{ datapath: "exact", outDtype: "f32" },
    }).out.dataSync();
  // codes of 6 and 3 under scales of 448: the two orders round the product p of the codes to different values
  const [g, h] = [fround(1.9), fround(1.3)];
  const p = fround(2688 * 2688 * 1.25 * fround(1 / 7225344));
  const [inTurn, together] = [fround(fround(p * g) * h), fround(p * fround(g * h))];
  expect(inTurn).not.toBe(together);
  expect(run([g, g], [h, h])[0]).toBe(inTurn);
  expect(run([g], [h, h])[0]).toBe(together);
  expect(run([g, g], [h])[0]).toBe(together);
  expect(run([g], [h])[0]).toBe(together);
  // x whose product with both amaxes overflows f32 in the other order
  const large = 2 ** 100;
  expect(run([large, large], [2 ** -100, 2 ** -100])[0]).toBe(p);
});
