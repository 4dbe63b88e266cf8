/** A third-party backend that uses only the published types computes the same results as the library's own. */
import {
  autocast,
  type Backend,
  DisposedError,
  functional,
  gemm,
  Linear,
  MXFP8BlockScaling,
  MXFP8Quantizer,
  manualSeed,
  openBackend,
  Scope,
  tensor,
  UnsupportedError,
  Variable,
} from "lockstep";
import { describe, expect, it } from "vitest";
import { LoggingBackend } from "../../harness/surface/logging-backend.js";

const values = Float32Array.from({ length: 32 * 64 }, (_, i) => Math.sin(i));

/** One training step of a small layer; returns the loss and the gradients. */
function step(backend: Backend): readonly (readonly number[])[] {
  using _scope = new Scope();
  manualSeed(backend, 7n);
  const layer = new Linear(backend, 64, 32);
  const x = new Variable(tensor(backend, values, [32, 64]), true);
  const target = tensor(backend, new Float32Array(1024), [32, 32]);
  const y = autocast({ recipe: new MXFP8BlockScaling() }, () => layer.forward(x));
  const loss = functional.mseLoss(y, target);
  loss.backward();
  const results = [loss.tensor, x.grad, layer.weight.grad].map((tensor) => [...(tensor?.dataSync() ?? [])]);
  x.zeroGrad();
  layer.dispose();
  return results;
}

describe("a third-party backend", () => {
  it("gives a training step the bits of the backend it wraps, and sees every operation", async () => {
    const reference = await openBackend("wasm", { threads: 1 });
    const logging = new LoggingBackend(reference);
    const expected = step(reference);
    expect(step(logging)).toEqual(expected);
    expect(expected[0]?.[0]).toBeGreaterThan(0);
    expect(new Set(logging.log)).toContain("quantize");
    expect(logging.log.filter((op) => op === "gemm")).toHaveLength(3);
    expect(reference.memoryUse().blocks).toBe(0);
    await logging.dispose();
    expect(() => tensor(logging, [1])).toThrow(DisposedError);
  });

  it("reports unsupported operations, and errors and texts contain its name", async () => {
    const logging = new LoggingBackend(await openBackend("wasm", { threads: 1 }), ["gemm"]);
    {
      using _scope = new Scope();
      const x = tensor(logging, values, [32, 64]);
      const q = new MXFP8Quantizer().quantize(x);
      expect(() => gemm({ a: q, b: q })).toThrow(
        new UnsupportedError("gemm", "the logging backend leaves it out"),
      );
      expect(String(q)).toMatch(/^QuantizedTensor\(mxfp8 e4m3 1x32, f32 \[32, 64\] logging/);
    }
    await logging.dispose();
  });
});
