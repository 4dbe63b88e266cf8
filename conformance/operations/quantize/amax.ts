/** amax: the largest magnitude. */
import * as fc from "fast-check";
import { execute } from "../../../src/ops/execute.js";
import type { WideDType } from "../../../src/tensor/shape.js";
import { Tensor } from "../../../src/tensor/tensor.js";
import { matrixShape, wideMatrix } from "../../arbitraries/matrices.js";
import { wideType } from "../../arbitraries/wide.js";
import { amaxOf } from "../../oracle/core/scale.js";
import { download, type PlainTensor, upload, wideValues } from "../../values/plain.js";
import type { Operation } from "../operation.js";
import { scalar } from "./quantize.js";

export interface AmaxCase {
  readonly x: PlainTensor<WideDType>;
}

export const amaxOperation: Operation<AmaxCase> = {
  arbitrary: fc
    .tuple(wideType(), matrixShape(1, 32, 2048))
    .chain(([dtype, shape]) => wideMatrix({ dtype, shape, block: 32, max: 448 }))
    .map((x) => ({ x })),
  run(backend, { x }) {
    const out = new Tensor(backend, "f32", [1]);
    execute(backend, "amax", { x: upload(backend, x), out });
    return { amax: download(out) };
  },
  oracle: ({ x }) => ({ amax: scalar(amaxOf(wideValues(x))) }),
};
