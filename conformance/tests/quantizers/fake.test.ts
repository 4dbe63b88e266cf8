/** A fake quantizer returns the dequantized values of its inner quantizer, also for one of two copies. */
import { expect, it } from "vitest";
import {
  ArgumentError,
  FakeQuantizer,
  HybridQuantizer,
  IdentityQuantizer,
  MXFP4Quantizer,
  MXFP8Quantizer,
  type Quantizer,
  Scope,
  type Tensor,
  tensor,
} from "../../../src/index.js";
import { useBackend } from "../harness/suite.js";

const backend = useBackend();
const values = Float32Array.from({ length: 64 * 32 }, (_, i) => Math.sin(i) * 2 ** (i % 9));

function decodedValues(quantizer: Quantizer, x: Tensor, copy: "rowwise" | "columnwise"): unknown {
  const usage = { rowwise: copy === "rowwise", columnwise: copy === "columnwise" };
  return quantizer.setUsage(usage).quantize(x).dequantize("f32").dataSync();
}

it("returns the values of the rowwise copy", () => {
  using _ = new Scope();
  const x = tensor(backend(), values, [64, 32]);
  const fake = new FakeQuantizer(new MXFP4Quantizer({ columnwise: true }));
  expect(fake.quantize(x).dataSync()).toEqual(decodedValues(new MXFP4Quantizer(), x, "rowwise"));
  expect(fake.quantizer).toBeInstanceOf(MXFP4Quantizer);
});

it("makes one copy of a hybrid quantizer", () => {
  using _ = new Scope();
  const x = tensor(backend(), values, [64, 32]);
  const [rowwiseQuantizer, columnwiseQuantizer] = [
    new MXFP8Quantizer(),
    new FakeQuantizer(new MXFP4Quantizer()),
  ];
  const { rowwise, columnwise } = new HybridQuantizer({ rowwiseQuantizer, columnwiseQuantizer }).quantize(x);
  expect(rowwise).toHaveProperty("spec.quantizer", "mxfp8");
  expect((columnwise as Tensor).dataSync()).toEqual(decodedValues(new MXFP4Quantizer(), x, "columnwise"));
});

it.each([undefined, new IdentityQuantizer(), "mxfp8"])("refuses %s", (quantizer) => {
  expect(() => new FakeQuantizer(quantizer as unknown as Quantizer)).toThrow(ArgumentError);
});
