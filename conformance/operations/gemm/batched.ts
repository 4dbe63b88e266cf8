/** The operation `batchedGemm`. Each item must equal the oracle's product of only that item. */
import type { Backend } from "../../../src/backends/backend.js";
import { batchedGemm } from "../../../src/ops/gemm/batched.js";
import type { GeneralOperands, NamedOperands } from "../../../src/ops/gemm/named-operands.js";
import type { Direction } from "../../../src/tensor/quantized.js";
import { Tensor } from "../../../src/tensor/tensor.js";
import { download, fromCodes, type PlainTensor, upload } from "../../values/plain.js";
import type { Answer, Operation } from "../operation.js";
import { batchedCase } from "./arbitrary-batched.js";
import { type BatchedCase, directionsOf, itemCase } from "./case.js";
import { gemmOperation } from "./gemm.js";
import { turned } from "./operand.js";

export const batchedGemmOperation: Operation<BatchedCase> = {
  arbitrary: batchedCase(),
  run: runBatchedGemm,
  oracle(input) {
    const { batch, rows, columns } = input.size;
    const products = input.items.map(
      (item) => gemmOperation.oracle(itemCase(input, item)).out as PlainTensor,
    );
    return { out: joined(input.outDtype ?? input.format, [batch, rows, columns], products) };
  },
};

/** Runs the batch on a backend; `named` names the two operands. */
export function runBatchedGemm(
  backend: Backend,
  input: BatchedCase,
  named = (operands: GeneralOperands<Tensor>): NamedOperands<Tensor> => operands,
): Answer {
  const { size, layout, datapath, alpha, format, outDtype, intoOut } = input;
  const { batch, rows, columns } = size;
  const directions = directionsOf(layout);
  const out = intoOut ? new Tensor(backend, outDtype ?? format, [batch, rows, columns]) : undefined;
  const operands = {
    a: upload(backend, stored(input, "a", directions.a)),
    b: upload(backend, stored(input, "b", directions.b)),
    layout,
  };
  const result = batchedGemm({
    ...named(operands),
    datapath,
    alpha,
    ...(outDtype ? { outDtype } : {}),
    ...(out ? { out } : {}),
  });
  return { out: download(result.out) };
}

/** One operand of all items as a tensor [batch, lines, K] or [batch, K, lines]. */
function stored({ format, items, size }: BatchedCase, name: "a" | "b", direction: Direction): PlainTensor {
  const lines = name === "a" ? size.columns : size.rows;
  const matrix = direction === "rowwise" ? [lines, size.depth] : [size.depth, lines];
  const each = items.map((item) => (direction === "rowwise" ? item[name].codes : turned(item[name].codes)));
  return joined(format, [size.batch, ...matrix], each);
}

function joined<D extends BatchedCase["format"]>(
  dtype: D,
  shape: readonly number[],
  items: readonly PlainTensor[],
): PlainTensor<D> {
  return fromCodes(
    dtype,
    shape,
    items.flatMap(({ codes }) => Array.from(codes)),
  );
}
