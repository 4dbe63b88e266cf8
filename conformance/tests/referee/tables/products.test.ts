/**
 * The models of products give every bit that PyTorch computed on an H200. If cuBLASLt split K, the recording has the number of
 * splits.
 */
import { expect, it } from "vitest";
import { gemm, Scope } from "../../../../src/index.js";
import { fusedResult } from "../../../../src/referee/fused-products.js";
import { OPERATORS } from "../../../../src/referee/table.js";
import { toValue } from "../../../../src/referee/value.js";
import { cases } from "../../harness/gemm/torch-h200.js";
import {
  type Compute,
  type RecordedCall,
  recordedCalls,
  testOperators,
} from "../../harness/referee/torch-operators.js";

const inSplits =
  (splitK: number): Compute =>
  ({ product }, call) => {
    using _ = new Scope();
    if (!product) throw new Error("the row is no product");
    return [toValue(gemm({ ...product(call), splitK }).out)];
  };

/** A vector has lanes whose halves are added. */
const inLanes =
  (lanes: { readonly count: number; readonly run: number }): Compute =>
  (_, call) => {
    const [rows] = call.tensor(call.get("mat1") === undefined ? "self" : "mat1").shape;
    return [fusedResult(call, { ...lanes, join: rows === 1 ? "halves" : "ascending" })];
  };

interface Matrix {
  readonly dtype: string;
  readonly shape: readonly number[];
}

const factorsOf = ({ schema, args }: RecordedCall): readonly [Matrix, Matrix] =>
  args.slice(schema === "aten::addmm" ? 1 : 0) as unknown as readonly [Matrix, Matrix];

/** Whether rows of K or N elements are not a multiple of so many elements. */
const isUnaligned = (call: RecordedCall, elements: number): boolean =>
  factorsOf(call)[1]
    .shape.slice(-2)
    .some((extent) => extent % elements !== 0);

/** Whether the order of the sums follows from no rule: the operands are f32, or K or N is not a multiple of 8. */
const variesInOrder = (call: RecordedCall): boolean =>
  factorsOf(call)[0].dtype === "F32" || isUnaligned(call, 8);

/** Whether a product has no known order: the operands are in 16 bits, and K or N is not a multiple of 4. */
const hasNoModel = (call: RecordedCall): boolean =>
  call.lanes === undefined && factorsOf(call)[0].dtype !== "F32" && isUnaligned(call, 4);

/** Whether a batch has no model: as `hasNoModel`, or vectors in f32. */
const isBatchWithoutModel = (call: RecordedCall): boolean => {
  const [{ dtype, shape }] = factorsOf(call);
  return dtype === "F32" ? shape[1] === 1 : isUnaligned(call, 4);
};

const wide = cases.filter(({ x }) => x === "bf16" || x === "f16");

testOperators(
  "products",
  [],
  {
    "aten::mm": hasNoModel,
    "aten::mm.dtype": hasNoModel,
    "aten::addmm": hasNoModel,
    "aten::bmm": isBatchWithoutModel,
  },
  ({ splits, lanes }) => {
    if (splits !== undefined) return inSplits(splits);
    return lanes ? inLanes(lanes) : ({ model }, call) => model(call);
  },
);

it("has as many recorded products as the witnesses of the rows say", () => {
  const calls = recordedCalls("products").filter((call) =>
    call.schema === "aten::bmm" ? !isBatchWithoutModel(call) : !variesInOrder(call),
  );
  const earlier = { "aten::mm.dtype": wide.length, "aten::_scaled_mm": cases.length - wide.length };
  for (const name of ["aten::mm", "aten::mm.dtype", "aten::addmm", "aten::bmm", "aten::_scaled_mm"]) {
    const recordedCalls = calls.filter(({ schema }) => schema === name);
    const dividedCount = recordedCalls.filter(({ splits }) => splits !== undefined).length;
    const unsplit = recordedCalls.length - dividedCount + (earlier[name as keyof typeof earlier] ?? 0);
    const text = OPERATORS[name]?.witness?.inputs ?? "";
    expect(text).toMatch(
      new RegExp(`^${unsplit} .*${dividedCount > 0 ? `, and ${dividedCount} that cuBLASLt divides` : ""}$`),
    );
  }
});
