/** `String` and `console.log` print the type, shape, backend and first values of a tensor, and never throw. */
import { inspect } from "node:util";
import fc from "fast-check";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import {
  type Backend,
  decode,
  empty,
  Float8Quantizer,
  MXFP8Quantizer,
  NVFP4Quantizer,
  openBackend,
  SCALAR_FORMATS,
  type ScalarFormat,
  Scope,
  type Tensor,
  tensor,
  Variable,
  zeros,
} from "../../../src/index.js";
import { memoryOf } from "../../../src/tensor/memory.js";
import { DTYPES } from "../../../src/tensor/shape.js";
import { draws } from "../harness/draws.js";

let backend: Backend;
beforeAll(async () => {
  backend = await openBackend("wasm", { threads: 1 });
});
afterAll(() => backend.dispose());

/** The values in a printed list. */
function valuesIn(text: string): readonly number[] {
  const list = /\) \[(.*)\]$/.exec(text)?.[1] ?? "none";
  return list === "" ? [] : list.split(", ").map(Number);
}

/** The sizes in bytes of all reads from a backend's memory while `body` runs. */
function readsDuring(body: () => void): readonly number[] {
  const memory = memoryOf(backend);
  const { readSync } = memory;
  const reads: number[] = [];
  memory.readSync = (address, bytes) => {
    reads.push(bytes);
    return readSync.call(memory, address, bytes);
  };
  body();
  memory.readSync = readSync;
  return reads;
}

describe("a tensor as text", () => {
  it("shows its type, shape, backend and values", () => {
    using _scope = new Scope();
    const x = tensor(backend, [0, -0, 0.1, Number.NaN, Number.POSITIVE_INFINITY, 1e-45], [2, 3]);
    expect(String(x)).toBe("Tensor(f32 [2, 3] wasm) [0, -0, 0.1, NaN, Infinity, 1e-45]");
    expect(inspect(x)).toBe(String(x));
    expect(inspect({ x })).toContain(String(x));
    expect(String(new Variable(x, true))).toBe(`Variable(requires grad, ${x})`);
    expect(String(empty(backend, "e2m1", [0, 4]))).toBe("Tensor(e2m1 [0, 4] wasm) []");
  });

  it("shows the first eight values of a long tensor, and reads no others", () => {
    using _scope = new Scope();
    const x = tensor(
      backend,
      Float32Array.from({ length: 1000 }, (_, i) => i),
    );
    const reads = readsDuring(() => {
      expect(String(x)).toBe("Tensor(f32 [1000] wasm) [0, 1, 2, 3, 4, 5, 6, 7, ... 992 more]");
    });
    expect(reads).toEqual([32]);
  });

  it.each(Object.keys(SCALAR_FORMATS) as ScalarFormat[])(
    "gives every code of %s the value that decode gives",
    (format) => {
      const layout = SCALAR_FORMATS[format];
      const bits = layout.exponentBits + layout.mantissaBits + Number(layout.signed);
      const stored = bits <= 4 ? 4 : bits <= 8 ? 8 : bits <= 16 ? 16 : 32;
      const bytesOf = { 4: 4, 8: 8, 16: 16, 32: 32 }[stored];
      fc.assert(
        fc.property(fc.array(fc.nat(2 ** bits - 1), { minLength: 8, maxLength: 8 }), (codes) => {
          using _scope = new Scope();
          const bytes = new Uint8Array(bytesOf);
          codes.forEach((code, i) => {
            if (stored === 4) bytes[i >> 1] = (bytes[i >> 1] ?? 0) | (code << (4 * (i & 1)));
            else for (let b = 0; b < stored / 8; b++) bytes[(i * stored) / 8 + b] = (code >>> (8 * b)) & 255;
          });
          const x: Tensor = empty(backend, format, [8]).write(bytes);
          const shownValues = valuesIn(String(x)).map(Math.fround);
          expect(shownValues).toEqual([...decode(x).dataSync()]);
        }),
        { numRuns: draws(200) },
      );
    },
  );

  it("shows zeros of every type", () => {
    using _scope = new Scope();
    for (const dtype of DTYPES)
      expect(String(empty(backend, dtype, [2, 8]))).toContain(`${dtype} [2, 8] wasm`);
  });

  it("shows the parts of a quantized tensor", () => {
    using _scope = new Scope();
    const x = tensor(backend, new Float32Array(1024).fill(2), [32, 32]);
    const text = String(new MXFP8Quantizer().quantize(x));
    expect(text).toBe(
      [
        "QuantizedTensor(mxfp8 e4m3 1x32, f32 [32, 32] wasm, scales logical)",
        "  rowwise: codes [256, 256, 256, 256, 256, 256, 256, 256, ... 1016 more], scaleInv [0.0078125, 0.0078125, 0.0078125, 0.0078125, 0.0078125, 0.0078125, 0.0078125, 0.0078125, ... 24 more]",
      ].join("\n"),
    );
    const nv = new NVFP4Quantizer({ columnwise: true }).quantize(
      tensor(backend, new Float32Array(256).fill(2), [16, 16]),
    );
    expect(inspect(nv)).toMatch(
      /^QuantizedTensor\(nvfp4 e2m1 1x16, .*\n {2}rowwise: .* amax \[2\]\n {2}columnwise: .* amax \[2\]$/,
    );
    nv.dispose();
    expect(String(nv)).toMatch(/rowwise: codes disposed, scaleInv disposed, amax disposed/);
    const delayedTensor = new Float8Quantizer({ scale: tensor(backend, [1]) }).quantize(x);
    expect(String(delayedTensor)).toContain("fp8-delayed e4m3 tensor");
  });

  it("never throws: disposed tensors, disposed backends, memory that cannot be read", async () => {
    const closedBackend = await openBackend("wasm", { threads: 1 });
    const x = zeros(closedBackend, "f32", [4]);
    const disposed = zeros(closedBackend, "bf16", [2, 2]);
    disposed.dispose();
    expect(String(disposed)).toBe("Tensor(bf16 [2, 2] wasm) disposed");
    const memory = memoryOf(closedBackend);
    const { readSync } = memory;
    memory.readSync = () => {
      throw new Error("the GPU\nhas failed");
    };
    expect(String(x)).toBe("Tensor(f32 [4] wasm) cannot be read: the GPU\\nhas failed");
    memory.readSync = readSync;
    await closedBackend.dispose();
    expect(inspect(x)).toBe("Tensor(f32 [4] wasm) its backend is disposed");
  });
});
