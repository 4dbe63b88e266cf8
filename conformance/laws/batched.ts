/** Laws of batched products, stated in terms of single products. */
import { batchedCase } from "../operations/gemm/arbitrary-batched.js";
import { itemCase } from "../operations/gemm/case.js";
import { assertSame } from "../values/difference.js";
import { fromCodes } from "../values/plain.js";
import { type Law, law } from "./law.js";

const everyItem = law(
  { name: "every item of a batch is the product of its own operands", operation: "batchedGemm" },
  batchedCase(),
  async (subject, input) => {
    const answer = await subject.batchedGemm?.(input);
    if (!answer?.out || !subject.gemm) return;
    const { rows, columns } = input.size;
    const { codes, dtype } = answer.out;
    for (const [i, item] of input.items.entries()) {
      const { out } = await subject.gemm(itemCase(input, item));
      const first = i * rows * columns;
      const part = fromCodes(dtype, [rows, columns], codes.slice(first, first + rows * columns));
      if (out) assertSame(`item ${i}`, part, out);
    }
  },
);

export const BATCHED_LAWS: readonly Law[] = [everyItem];
