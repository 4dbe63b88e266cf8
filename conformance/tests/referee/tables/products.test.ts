/**
 * The models of products give every bit that PyTorch computed on an H200. If cuBLASLt split K, the recording has the number of
 * splits.
 */
import { expect, it } from "vitest";
import { gemm, Scope } from "../../../../src/index.js";
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

/**
 * Whether cuBLAS uses another kernel than the modelled one: the operands are f32 and no batch of several rows, or K or N of other
 * operands is not a multiple of 8.
 */
function usesOtherKernel({ schema, args }: RecordedCall): boolean {
  const [a, b] = args.slice(schema === "aten::addmm" ? 1 : 0) as unknown as {
    readonly dtype: string;
    readonly shape: readonly number[];
  }[];
  if (a?.dtype === "F32") return schema !== "aten::bmm" || a.shape[1] === 1;
  return b?.shape.slice(-2).some((extent) => extent % 8 !== 0) === true;
}

const wide = cases.filter(({ x }) => x === "bf16" || x === "f16");

testOperators(
  "products",
  [],
  {
    "aten::mm": usesOtherKernel,
    "aten::mm.dtype": usesOtherKernel,
    "aten::addmm": usesOtherKernel,
    "aten::bmm": usesOtherKernel,
  },
  ({ splits }) => (splits === undefined ? ({ model }, call) => model(call) : inSplits(splits)),
);

it("has as many recorded products as the witnesses of the rows say", () => {
  const calls = recordedCalls("products").filter((call) => !usesOtherKernel(call));
  const earlier = { "aten::mm.dtype": wide.length, "aten::_scaled_mm": cases.length - wide.length };
  for (const name of ["aten::mm", "aten::mm.dtype", "aten::addmm", "aten::bmm", "aten::_scaled_mm"]) {
    const recorded = calls.filter(({ schema }) => schema === name);
    const divided = recorded.filter(({ splits }) => splits !== undefined).length;
    const unsplit = recorded.length - divided + (earlier[name as keyof typeof earlier] ?? 0);
    const text = OPERATORS[name]?.witness?.inputs ?? "";
    expect(text).toMatch(
      new RegExp(`^${unsplit} .*${divided > 0 ? `, and ${divided} that cuBLASLt divides` : ""}$`),
    );
  }
});
