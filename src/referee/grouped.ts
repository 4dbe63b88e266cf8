/** Models of grouped products: the rows of one matrix are divided into groups, and each group is multiplied by its own matrix. */
import { ShapeError } from "../errors.js";
import { gemm } from "../ops/gemm/gemm.js";
import { Scope } from "../tensor/scope.js";
import { elementCount } from "../tensor/shape.js";
import type { Call, Model } from "./call.js";
import { NotModelled } from "./not-modelled.js";
import { HOPPER, scaledOperand, wideProduct } from "./products.js";
import { toIntegers } from "./selections.js";
import { concatenateBytes, sliceRows, toValue, transposeLastDims, type Value } from "./value.js";

/** One group: rows `begin` to `end` - 1 of `self`, the matrix that multiplies them, and the index of the group. */
interface Group {
  readonly rows: Value;
  readonly matrix: Value;
  readonly index: number;
  readonly begin: number;
  readonly end: number;
}

/** Divides the rows of `self` into groups, whose ends are in `offs`, and assigns the matrices of `mat2` to them. */
function divideGroups(call: Call): readonly Group[] {
  const [a, b] = [call.tensor("self"), call.tensor("mat2")];
  if (a.shape.length !== 2 || b.shape.length !== 3 || call.get("offs") === undefined)
    throw new NotModelled(`groups of [${a.shape}] and [${b.shape}]`);
  for (const name of ["bias", "scale_result"]) call.requireDefault(name, null);
  const ends = toIntegers(call.tensor("offs"));
  const [rows = 0] = a.shape;
  const isAscending = ends.every((end, i) => end >= (ends[i - 1] ?? 0) && end <= rows);
  if (ends.length !== b.shape[0] || a.shape[1] !== b.shape[1] || !isAscending)
    throw new ShapeError(`offsets [${ends}] of [${a.shape}] and [${b.shape}]`);
  if (ends.at(-1) !== rows) throw new NotModelled("rows beyond the last group, which PyTorch does not write");
  return ends.map((end, index) => {
    const begin = ends[index - 1] ?? 0;
    const [, ...shape] = b.shape;
    return {
      rows: sliceRows(a, begin, end),
      matrix: { ...sliceRows(b, index, index + 1), shape },
      index,
      begin,
      end,
    };
  });
}

/** Concatenates the results of all groups along the rows. */
function concatenateGroups(call: Call, results: readonly Value[]): readonly Value[] {
  const shape = [call.tensor("self").shape[0] as number, call.tensor("mat2").shape[2] as number];
  return [concatenateBytes(results, { dtype: "BF16", shape })];
}

/** aten::_grouped_mm of bf16 matrices. */
export const groupedProduct: Model = (call) => {
  if (call.tensor("self").dtype !== "BF16") throw new NotModelled(`groups of ${call.tensor("self").dtype}`);
  call.dtype("out_dtype");
  return concatenateGroups(
    call,
    divideGroups(call).map(({ rows, matrix }) => {
      using _ = new Scope();
      return toValue(gemm(wideProduct(call, rows, matrix)).out);
    }),
  );
};

/**
 * aten::_scaled_grouped_mm with scales of rows and columns: (sum * scale_a) * scale_b in f32, rounded once. `gemm` multiplies by
 * the scale of its second operand first, so the operands are exchanged.
 */
export const scaledGroupedProduct: Model = (call) => {
  const [scaleA, scaleB] = [call.tensor("scale_a"), call.tensor("scale_b")];
  if (!call.boolean("use_fast_accum", false)) throw new NotModelled("groups with split accumulators");
  if (call.dtype("out_dtype") !== "BF16") throw new NotModelled("groups with another result than bf16");
  for (const name of ["self", "mat2"])
    if (call.tensor(name).dtype !== "F8_E4M3") throw new NotModelled(`groups of ${call.tensor(name).dtype}`);
  const groups = divideGroups(call);
  const [rows, columns] = [elementCount(scaleA.shape), elementCount(scaleB.shape)];
  if (rows !== call.tensor("self").shape[0] || columns !== groups.length * (groups[0]?.matrix.shape[1] ?? 0))
    throw new NotModelled(`scales [${scaleA.shape}] and [${scaleB.shape}]`);
  return concatenateGroups(
    call,
    groups.map(({ rows: data, matrix, index, begin, end }) => {
      using _ = new Scope();
      const w = transposeLastDims(matrix);
      const [width = 0] = w.shape;
      const toColumn = (scale: Value, count: number): Value => ({ ...scale, shape: [count, 1] });
      const columnOperand = scaledOperand(
        call,
        "scale_b",
        w,
        toColumn(sliceRows({ ...scaleB, shape: [groups.length, width] }, index, index + 1), width),
      );
      const rowOperand = scaledOperand(
        call,
        "scale_a",
        data,
        toColumn(sliceRows({ ...scaleA, shape: [rows] }, begin, end), end - begin),
      );
      return transposeLastDims(
        toValue(
          gemm({ x: columnOperand, w: rowOperand, outDtype: "bf16", ...HOPPER, useSplitAccumulator: false })
            .out,
        ),
      );
    }),
  );
};

/** Whether the operands are at most as large as the recorded operands. */
export const isComparedGroups = (call: Call): boolean => {
  const [rows = 0, depth = 0] = call.tensor("self").shape;
  return rows <= 2048 && depth <= 256 && (call.tensor("mat2").shape[2] ?? 0) <= 512;
};
