import { describe, expect } from "vitest";
import { ArgumentError, DTypeError, ShapeError } from "../../../src/errors.js";
import { decode, encode } from "../../../src/ops/cast/cast.js";
import { tensor } from "../../../src/ops/create.js";
import { layerNorm, rmsNorm } from "../../../src/ops/rows/norm.js";
import { Float8CurrentScalingQuantizer, Float8Quantizer } from "../../../src/quantizers/float8.js";
import { MXFP8Quantizer } from "../../../src/quantizers/mx.js";
import { NVFP4Quantizer } from "../../../src/quantizers/nvfp4.js";
import type { Tensor } from "../../../src/tensor/tensor.js";
import { assertSameAnswer } from "../../laws/laws.js";
import { downloadQuantized } from "../../operations/quantize/quantized.js";
import { download } from "../../values/plain.js";
import { derivedSeed } from "../harness/draws.js";
import { describeLaws, testInScope, useBackend } from "../harness/suite.js";

const backend = useBackend();

/** A bf16 matrix of multiples of 1/32 from -4 to below 4. */
function multiplesMatrix(rows: number, columns: number): Tensor<"bf16"> {
  const values = Float32Array.from({ length: rows * columns }, (_, i) => ((i * 37) % 256) / 32 - 4);
  return encode(tensor(backend(), values, [rows, columns]), { format: "bf16" }) as Tensor<"bf16">;
}

function rampValues(columns: number): Tensor<"f32"> {
  return tensor(
    backend(),
    Float32Array.from({ length: columns }, (_, i) => 0.5 + i / columns),
  );
}

describe("the value that is quantized", () => {
  testInScope("delayed FP8 casts the f32 value, and records its amax", () => {
    const [x, gamma, beta] = [multiplesMatrix(32, 64), rampValues(64), rampValues(64)];
    const record = tensor(backend(), [0]);
    const quantizer = new Float8Quantizer({ scale: tensor(backend(), [64]), amax: record, columnwise: true });
    const fusedResult = quantizer.normQuantize(x, { gamma, beta, eps: 1e-3, zeroCenteredGamma: true });
    expect([fusedResult.out.dtype, fusedResult.out.shape]).toEqual(["bf16", [32, 64]]);
    const recordedAmax = download(record);
    record.write(Float32Array.of(0));
    const options = { eps: 1e-3, zeroCenteredGamma: true };
    const wide = layerNorm(x, gamma, beta, { ...options, outDtype: "f32" });
    assertSameAnswer(downloadQuantized(fusedResult.out), downloadQuantized(quantizer.quantize(wide.out)));
    assertSameAnswer({ amax: recordedAmax }, { amax: download(record) });
    for (const statistic of ["mean", "rstd"] as const) {
      assertSameAnswer(
        { [statistic]: download(fusedResult[statistic] as Tensor) },
        { [statistic]: download(wide[statistic] as Tensor) },
      );
    }
    const narrow = quantizer.quantize(layerNorm(x, gamma, beta, options).out);
    expect(() => assertSameAnswer(downloadQuantized(fusedResult.out), downloadQuantized(narrow))).toThrow(
      /rowwise.data/,
    );
  });

  testInScope("current scaling and NVFP4 cast the rounded value by its own amax, or by the one given", () => {
    const [x, gamma] = [multiplesMatrix(32, 64), rampValues(64)];
    const roundedNorm = rmsNorm(x, gamma).out;
    const largest = (x: Tensor): number =>
      (x.dataSync() as Float32Array).reduce((maximum, value) => Math.max(maximum, Math.abs(value)), 0);
    const [stored, exactMaximum] = [
      largest(decode(roundedNorm)),
      largest(rmsNorm(x, gamma, { outDtype: "f32" }).out),
    ];
    expect(stored).not.toBe(exactMaximum);
    const { out } = new Float8CurrentScalingQuantizer().normQuantize(x, { gamma });
    expect(out.copy("rowwise").scaleInv.dataSync()[0]).toBe(Math.fround(1 / Math.fround(448 / stored)));
    const twoSteps = new Float8CurrentScalingQuantizer().quantize(roundedNorm);
    assertSameAnswer(downloadQuantized(out), downloadQuantized(twoSteps));
    const fp4 = new NVFP4Quantizer({ columnwise: true }).normQuantize(x, { gamma }).out;
    expect([fp4.rowwise, fp4.columnwise].map((copy) => copy?.amax?.dataSync()[0])).toEqual([stored, stored]);
    const quantizer = new Float8CurrentScalingQuantizer({ amax: tensor(backend(), [3]), columnwise: true });
    assertSameAnswer(
      downloadQuantized(quantizer.normQuantize(x, { gamma }).out),
      downloadQuantized(quantizer.quantize(roundedNorm)),
    );
  });

  testInScope(
    "MXFP8 and NVFP4 quantize the value rounded to the input's type, and take their amax of it",
    () => {
      const [x, gamma] = [multiplesMatrix(32, 64), rampValues(64)];
      const usage = { rowwise: true, columnwise: true };
      for (const quantizer of [new MXFP8Quantizer(usage), new NVFP4Quantizer({ ...usage, rht: true })]) {
        const fusedResult = quantizer.normQuantize(x, { gamma });
        expect(fusedResult.mean).toBeUndefined();
        const twoSteps = quantizer.quantize(rmsNorm(x, gamma).out);
        assertSameAnswer(downloadQuantized(fusedResult.out), downloadQuantized(twoSteps));
      }
    },
  );

  testInScope("an empty tensor has amax 0 and the inverse of the given scale", () => {
    const record = tensor(backend(), [0]);
    const quantizer = new Float8Quantizer({ scale: tensor(backend(), [4]), amax: record });
    const { out, rstd } = quantizer.normQuantize(tensor(backend(), [], [0, 16]), { gamma: rampValues(16) });
    expect(out.copy("rowwise").scaleInv.dataSync()).toEqual(Float32Array.of(0.25));
    expect([record.dataSync()[0], rstd.shape]).toEqual([0, [0]]);
  });
});

describe("refuses", () => {
  testInScope("parameters that do not fit, before anything is quantized", () => {
    const [x, gamma] = [multiplesMatrix(32, 64), rampValues(64)];
    const record = tensor(backend(), [0]);
    const quantizer = new Float8Quantizer({ scale: tensor(backend(), [64]), amax: record });
    expect(() => quantizer.normQuantize(x, { gamma: rampValues(32) })).toThrow(
      "normQuantize: gamma is [32]; it must be [64]",
    );
    expect(() => quantizer.normQuantize(x, { gamma, beta: rampValues(65) })).toThrow(ShapeError);
    const narrow = encode(gamma, { format: "bf16" });
    expect(() => quantizer.normQuantize(x, { gamma, beta: narrow })).toThrow(
      "normQuantize: gamma is f32 and beta bf16; give both in one type",
    );
    expect(() => quantizer.normQuantize(x, { gamma, eps: -1 })).toThrow(ArgumentError);
    expect(() => quantizer.normQuantize(encode(x, { format: "e4m3" }), { gamma })).toThrow(DTypeError);
    expect(() =>
      new MXFP8Quantizer().normQuantize(multiplesMatrix(32, 48), { gamma: rampValues(48) }),
    ).toThrow(/multiple of/);
    expect(record.dataSync()[0]).toBe(0);
  });
});

describeLaws(useBackend({ threads: 2 }), ["normQuantize"], { runs: 400, seed: derivedSeed(31) });
