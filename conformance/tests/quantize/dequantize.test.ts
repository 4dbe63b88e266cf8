/** dequantize: its laws, the choice of the copy, types, layouts and threads. */
import { describe, expect } from "vitest";
import { ArgumentError, DisposedError } from "../../../src/errors.js";
import { valueOfCode } from "../../../src/formats/derive.js";
import { tensor } from "../../../src/ops/create.js";
import { dequantize } from "../../../src/ops/quantize/dequantize.js";
import { Float8CurrentScalingQuantizer } from "../../../src/quantizers/float8.js";
import { Float8BlockQuantizer } from "../../../src/quantizers/float8-block.js";
import { MXFP4Quantizer, MXFP8Quantizer } from "../../../src/quantizers/mx.js";
import { NVFP4Quantizer } from "../../../src/quantizers/nvfp4.js";
import type { Quantizer, QuantizerOptions } from "../../../src/quantizers/quantizer.js";
import type { QuantizedTensor } from "../../../src/tensor/quantized.js";
import { WIDE_DTYPES } from "../../../src/tensor/shape.js";
import type { Tensor } from "../../../src/tensor/tensor.js";
import { words } from "../../arbitraries/random.js";
import { assertSame } from "../../values/difference.js";
import { download, fromCodes, upload } from "../../values/plain.js";
import { derivedSeed } from "../harness/draws.js";
import { describeLaws, testEqualBits, testInScope, useBackend, useThreads } from "../harness/suite.js";

const backend = useBackend();
const threads = useThreads();

const QUANTIZERS: Readonly<Record<string, (options: QuantizerOptions) => Quantizer>> = {
  "fp8-current": (options) => new Float8CurrentScalingQuantizer({ ...options, pow2Scales: true }),
  "fp8-block": (options) => new Float8BlockQuantizer(options),
  mxfp8: (options) => new MXFP8Quantizer(options),
  mxfp4: (options) => new MXFP4Quantizer(options),
  nvfp4: (options) => new NVFP4Quantizer(options),
};

/** Integers from -6 to 6, with a 6 in each block of 16 along rows and columns. Every format represents them exactly. */
function wholeMatrix(rows: number, columns: number): Tensor<"f32"> {
  const values = [0, 1, -2, 3, -4, 6, -6, 1.5];
  const valueAt = (row: number, column: number): number =>
    (row + column) % 16 === 0 ? 6 : (values[(7 * row + 3 * column) % values.length] as number);
  const data = Float32Array.from({ length: rows * columns }, (_, i) =>
    valueAt(Math.floor(i / columns), i % columns),
  );
  return tensor(backend(), data, [rows, columns]);
}

describeLaws(backend, ["dequantize"], { runs: 250, seed: derivedSeed(13) });

describe("results do not depend on the number of threads", () => {
  const bits = fromCodes(
    "bf16",
    [640, 704],
    words(3, 640 * 704).map((bits) => (bits & 0x83ff) | 0x3c00),
  );
  for (const [name, make] of Object.entries(QUANTIZERS)) {
    for (const usage of [{}, { rowwise: false, columnwise: true }]) {
      testEqualBits(`${name}, ${"rowwise" in usage ? "columnwise" : "rowwise"}`, threads, (backend) => ({
        values: download(make(usage).quantize(upload(backend, bits)).dequantize("f32")),
      }));
    }
  }
});

describe("dequantized values", () => {
  testInScope("have the nominal type of the quantized tensor unless another is given", () => {
    for (const dtype of WIDE_DTYPES) {
      const quantizedTensor = new MXFP8Quantizer().makeEmpty(backend(), [2, 32], dtype);
      expect(dequantize(quantizedTensor).dtype).toBe(dtype);
      for (const dtype of WIDE_DTYPES) expect(dequantize(quantizedTensor, dtype).dtype).toBe(dtype);
    }
  });

  for (const [name, make] of Object.entries(QUANTIZERS)) {
    testInScope(
      `${name}: values that the format has are unchanged by quantize and dequantize, from either copy, in every scale layout`,
      () => {
        const x = wholeMatrix(64, 96);
        const layouts = name.startsWith("fp8")
          ? (["logical", "padded"] as const)
          : (["logical", "padded", "swizzled"] as const);
        for (const scaleLayout of layouts) {
          for (const rowwise of [true, false]) {
            const quantizedTensor = make({ rowwise, columnwise: !rowwise, scaleLayout }).quantize(x);
            assertSame(
              `${scaleLayout}, ${rowwise ? "rowwise" : "columnwise"}`,
              download(quantizedTensor.dequantize()),
              download(x),
            );
          }
        }
      },
    );
  }

  testInScope("have the source's type by default, and are rounded once", () => {
    const x = upload(backend(), fromCodes("f16", [1, 3], [0x3c01, 0x3c00, 0x0001]));
    const quantizedTensor = new Float8CurrentScalingQuantizer().quantize(x);
    expect(quantizedTensor.dtype).toBe("f16");
    expect(quantizedTensor.dequantize().dtype).toBe("f16");
    for (const dtype of ["f32", "bf16", "f16"] as const)
      expect(dequantize(quantizedTensor, dtype)).toMatchObject({ dtype, shape: [1, 3] });
  });

  testInScope("are in bf16 the rounded product of code and scale, not a product by the rounded scale", () => {
    const quantizedTensor = new Float8CurrentScalingQuantizer().makeEmpty(backend(), [1], "f32");
    quantizedTensor.copy("rowwise").data.write(Uint8Array.of(0x3c));
    quantizedTensor.copy("rowwise").scaleInv.write(Float32Array.of(1 + 2 ** -8));
    expect(quantizedTensor.dequantize("f32").dataSync()).toEqual(Float32Array.of(1.5 + 1.5 * 2 ** -8));
    expect(quantizedTensor.dequantize("bf16").dataSync()).toEqual(Uint16Array.of(0x3fc1));
  });

  const NVFP4_FORMS = [
    [{}, 448],
    [{ fourOverSix: "mae", e4m3Max: 256 }, 256],
    [{ rowScaled: true }, 448],
  ] as const;
  for (const [options, e4m3Max] of NVFP4_FORMS)
    testInScope(
      `are, of NVFP4 ${JSON.stringify(options)}, codes times (scale * amax) * (1 / max), each rounded to f32, for every scale`,
      () => {
        const { fround } = Math;
        const scales = Uint8Array.from({ length: 127 }, (_, code) => code);
        const codes = Uint8Array.from({ length: 8 * scales.length }, (_, i) => 0x10 + 0x22 * (i % 8));
        for (const amax of [1.7, Math.PI, 3e-4, 300.3].map(fround)) {
          const t = new NVFP4Quantizer(options).makeEmpty(backend(), [1, 16 * scales.length], "f32");
          const copy = t.copy("rowwise");
          copy.data.write(codes);
          copy.scaleInv.write(scales);
          copy.amax?.write(Float32Array.of(amax));
          const factors = Array.from(scales, (code) =>
            fround(fround(valueOfCode("e4m3", code) * amax) * fround(1 / (6 * e4m3Max))),
          );
          const expected = factors.flatMap((factor) =>
            Array.from({ length: 16 }, (_, code) => fround(valueOfCode("e2m1", code) * factor)),
          );
          expect(t.dequantize("f32").dataSync()).toEqual(Float32Array.from(expected));
        }
      },
    );

  testInScope("are those of the rowwise copy if there are both", () => {
    const quantizedTensor = new Float8CurrentScalingQuantizer({ columnwise: true }).quantize(
      tensor(backend(), [448]),
    );
    quantizedTensor.copy("columnwise").data.write(Uint8Array.of(0));
    expect(quantizedTensor.dequantize().dataSync()).toEqual(Float32Array.of(448));
    quantizedTensor.updateUsage({ rowwise: false });
    expect(quantizedTensor.dequantize().dataSync()).toEqual(Float32Array.of(0));
  });
});

describe("a tensor without the copy to dequantize is refused", () => {
  const newQuantized = (): QuantizedTensor =>
    new Float8CurrentScalingQuantizer().quantize(tensor(backend(), [1]));

  testInScope("a tensor whose copies were dropped", () => {
    const quantizedTensor = newQuantized().updateUsage({ rowwise: false });
    expect(() => quantizedTensor.dequantize()).toThrow(ArgumentError);
    expect(() => quantizedTensor.backend).toThrow(ArgumentError);
  });

  testInScope("a disposed tensor", () => {
    const quantizedTensor = newQuantized();
    quantizedTensor.dispose();
    expect(() => quantizedTensor.dequantize()).toThrow(DisposedError);
  });
});
