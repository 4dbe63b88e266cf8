/** Arbitraries of batched products: few and many items, sizes one past a kernel's tile, and sizes of attention. */
import * as fc from "fast-check";
import type { DatapathFamily } from "../../../src/formats/datapath.js";
import type { WideDType } from "../../../src/tensor/shape.js";
import { wideType } from "../../arbitraries/wide.js";
import { operandCase } from "./arbitrary-operands.js";
import type { BatchedCase } from "./case.js";

const lines = fc.oneof(fc.integer({ min: 1, max: 20 }), fc.constantFrom(0, 2, 8, 16, 17, 32, 64, 65));
const depths = fc.oneof(fc.integer({ min: 1, max: 72 }), fc.constantFrom(0, 8, 16, 32, 33, 64, 96, 128, 129));

/** A datapath that multiplies the type. Tensor cores do not take f32. */
function anyDatapath(format: WideDType): fc.Arbitrary<DatapathFamily> {
  const definitions = ["exact", "fp32"] as const;
  return format === "f32"
    ? fc.constantFrom<DatapathFamily>(...definitions)
    : fc.constantFrom<DatapathFamily>("hopper", "hopper", "ada", "blackwell", ...definitions);
}

export function batchedCase(datapaths = anyDatapath): fc.Arbitrary<BatchedCase> {
  const size = fc.record({
    batch: fc.oneof({ weight: 9, arbitrary: fc.integer({ min: 1, max: 5 }) }, fc.constantFrom(0, 17)),
    rows: lines,
    columns: lines,
    depth: depths,
  });
  return fc.tuple(wideType(), size).chain(([format, { batch, rows, columns, depth }]) => {
    const source = { kind: "plain", format } as const;
    const item = fc.record({
      a: operandCase(source, columns, depth),
      b: operandCase(source, rows, depth),
    });
    return fc.record({
      format: fc.constant(format),
      size: fc.constant({ batch, rows, columns, depth }),
      items: fc.array(item, { minLength: batch, maxLength: batch }),
      layout: fc.constantFrom("TN", "NN", "NT"),
      datapath: datapaths(format),
      alpha: fc.constantFrom(1, 1, 0.3, -2, 0, 2 ** -100),
      outDtype: fc.option(wideType(), { nil: undefined }),
      intoOut: fc.boolean(),
    });
  });
}
