import { describe, expect, it } from "vitest";
import { ArgumentError, DTypeError, ShapeError } from "../../../src/errors.js";
import { encode } from "../../../src/ops/cast/cast.js";
import { tensor } from "../../../src/ops/create.js";
import { activation, gated } from "../../../src/ops/elementwise/activation.js";
import { Float8CurrentScalingQuantizer, Float8Quantizer } from "../../../src/quantizers/float8.js";
import { MXFP8Quantizer } from "../../../src/quantizers/mx.js";
import { NVFP4Quantizer } from "../../../src/quantizers/nvfp4.js";
import type { Tensor } from "../../../src/tensor/tensor.js";
import { assertSameAnswer } from "../../laws/laws.js";
import { downloadQuantized } from "../../operations/quantize/quantized.js";
import { quantizeActivated } from "../../oracle/quantize/computed.js";
import { download } from "../../values/plain.js";
import { derivedSeed } from "../harness/draws.js";
import { describeLaws, testEqualBits, testInScope, useBackend, useThreads } from "../harness/suite.js";

const backend = useBackend();

/** A bf16 matrix of a sine wave between -4 and 4. */
function wave(rows: number, columns: number, b = backend()): Tensor<"bf16"> {
  const values = Float32Array.from({ length: rows * columns }, (_, i) => ((i * 37) % 256) / 32 - 4);
  return encode(tensor(b, values, [rows, columns]), { format: "bf16" }) as Tensor<"bf16">;
}

describe("the value that is quantized", () => {
  testInScope("delayed FP8 casts the f32 value, and records its amax", () => {
    const x = wave(32, 64);
    const amax = tensor(backend(), [0]);
    const quantizer = new Float8Quantizer({ scale: tensor(backend(), [64]), amax, columnwise: true });
    const fusedResult = downloadQuantized(quantizer.activationQuantize(x, { kind: "gelu" }));
    const record = download(amax);
    amax.write(Float32Array.of(0));
    const wide = activation(x, { kind: "gelu", outDtype: "f32" });
    assertSameAnswer(fusedResult, downloadQuantized(quantizer.quantize(wide)));
    assertSameAnswer({ amax: record }, { amax: download(amax) });
    const narrow = downloadQuantized(quantizer.quantize(activation(x, { kind: "gelu" })));
    expect(() => assertSameAnswer(fusedResult, narrow)).toThrow(/rowwise.data/);
  });

  testInScope("MXFP8 reads the value in the type of the input", () => {
    const x = wave(32, 128);
    const quantizer = new MXFP8Quantizer({ columnwise: true });
    const fusedResult = downloadQuantized(quantizer.activationQuantize(x, { kind: "silu", gated: true }));
    assertSameAnswer(fusedResult, downloadQuantized(quantizer.quantize(gated(x, { kind: "silu" }))));
    const wide = gated(x, { kind: "silu", outDtype: "f32" });
    expect(() => assertSameAnswer(fusedResult, downloadQuantized(quantizer.quantize(wide)))).toThrow();
  });

  testInScope("current scaling and NVFP4 cast the rounded value by the amax of the f32 one", () => {
    const x = encode(tensor(backend(), new Float32Array(256).fill(1.0234375), [16, 16]), { format: "bf16" });
    const exactResult = activation(x, { kind: "gelu", outDtype: "f32" }).dataSync()[0] as number;
    const roundedResult = activation(x, { kind: "gelu" });
    const scale = new Float8CurrentScalingQuantizer().activationQuantize(x, { kind: "gelu" }).copy("rowwise");
    expect(scale.scaleInv.dataSync()[0]).toBe(Math.fround(1 / Math.fround(448 / exactResult)));
    expect(scale.scaleInv.dataSync()[0]).not.toBe(
      new Float8CurrentScalingQuantizer().quantize(roundedResult).copy("rowwise").scaleInv.dataSync()[0],
    );
    const twoSteps = new NVFP4Quantizer({ columnwise: true }).activationQuantize(x, { kind: "gelu" });
    expect([twoSteps.rowwise, twoSteps.columnwise].map((copy) => copy?.amax?.dataSync()[0])).toEqual([
      exactResult,
      exactResult,
    ]);
    const transformingQuantizer = new NVFP4Quantizer({ columnwise: true, rht: true });
    assertSameAnswer(
      downloadQuantized(transformingQuantizer.activationQuantize(x, { kind: "gelu" })),
      downloadQuantized(transformingQuantizer.quantize(roundedResult)),
    );
  });

  testInScope("a given amax is used unchanged", () => {
    const x = wave(16, 16);
    const quantizer = new Float8CurrentScalingQuantizer({ amax: tensor(backend(), [7]) });
    const fusedResult = quantizer.activationQuantize(x, { kind: "relu" });
    expect(fusedResult.copy("rowwise").scaleInv.dataSync()[0]).toBe(1 / 64);
  });

  it("the oracle gives three different results for these three rules", () => {
    const x = { data: Float32Array.of(1 + 2 ** -9, 1), shape: [1, 2] as const, dtype: "bf16" as const };
    const spec = { quantizer: "fp8-delayed", scale: 448 / 453, format: "e5m2" } as const;
    expect(quantizeActivated(x, spec).amax).toBe(0x3f804000);
    const currentScale = quantizeActivated(x, { quantizer: "fp8-current" }).rowwise?.scale;
    const stored = quantizeActivated({ ...x, data: Float32Array.of(1, 1) }, { quantizer: "fp8-current" });
    expect(currentScale).not.toEqual(stored.rowwise?.scale);
  });
});

describe("the result", () => {
  testInScope("has the activation's shape, and the shape of x if it is a gradient", () => {
    const x = wave(32, 128).reshape([2, 16, 128]);
    const quantizer = new Float8CurrentScalingQuantizer();
    const options = { kind: "gelu", gated: true } as const;
    const forward = quantizer.activationQuantize(x, options);
    expect([forward.shape, forward.dtype]).toEqual([[2, 16, 64], "bf16"]);
    const grad = tensor(backend(), new Float32Array(2048), [2, 16, 64]);
    const backward = quantizer.activationQuantize(x, { ...options, grad });
    expect([backward.shape, backward.dtype]).toEqual([[2, 16, 128], "f32"]);
  });

  testInScope("may be empty", () => {
    const amax = tensor(backend(), [3]);
    const quantizer = new Float8Quantizer({ scale: tensor(backend(), [4]), amax });
    const emptyTensor = quantizer.activationQuantize(tensor(backend(), [], [0, 8]), { kind: "sigmoid" });
    expect([emptyTensor.copy("rowwise").scaleInv.dataSync()[0], amax.dataSync()[0]]).toEqual([0.25, 3]);
  });
});

describe("refuses", () => {
  const quantizer = new MXFP8Quantizer();

  testInScope("forms that do not exist", () => {
    const x = wave(32, 64);
    const clamp = { limit: 7 };
    expect(() => quantizer.activationQuantize(x, { kind: "gelu", gated: true, clamp })).toThrow(
      /activationQuantize: only silu has a clamped form/,
    );
    expect(() => quantizer.activationQuantize(x, { kind: "silu", clamp })).toThrow(
      /activationQuantize: the clamped form is gated; set gated/,
    );
    // @ts-expect-error an unknown activation
    expect(() => quantizer.activationQuantize(x, { kind: "tanh" })).toThrow(ArgumentError);
  });

  testInScope("shapes and types that do not fit", () => {
    const x = wave(32, 96);
    expect(() => quantizer.activationQuantize(x, { kind: "gelu", gated: true })).toThrow(/48 .*multiple of/);
    expect(() => quantizer.activationQuantize(wave(32, 33), { kind: "gelu", gated: true })).toThrow(
      ShapeError,
    );
    expect(() => quantizer.activationQuantize(x, { kind: "gelu", grad: wave(32, 64) })).toThrow(
      "activationQuantize: grad is [32,64]; it must be [32,96]",
    );
    const codes = encode(x, { format: "e4m3" });
    expect(() => quantizer.activationQuantize(codes, { kind: "gelu" })).toThrow(DTypeError);
    expect(() => quantizer.activationQuantize(x, { kind: "gelu", grad: codes })).toThrow(DTypeError);
  });

  testInScope("the transform of a gradient that is not bf16", () => {
    const grad = tensor(backend(), new Float32Array(256), [16, 16]);
    const transform = new NVFP4Quantizer({ columnwise: true, rht: true });
    expect(() => transform.activationQuantize(wave(16, 16), { kind: "gelu", grad })).toThrow(/is f32; cast/);
  });
});

testEqualBits("threads do not change a bit", useThreads(), (backend) => {
  const x = wave(256, 512, backend);
  const quantizer = new MXFP8Quantizer({ columnwise: true });
  return downloadQuantized(quantizer.activationQuantize(x, { kind: "gelu", gated: true }));
});

describeLaws(useBackend({ threads: 2 }), ["activationQuantize"], { runs: 400, seed: derivedSeed(29) });
