/** Opening and disposing of backends, memory, scopes, and `supports`. */
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { Backend } from "../../../src/backends/backend.js";
import { missingBackends, openBackend } from "../../../src/backends/open.js";
import type { GemmOperand } from "../../../src/backends/ops/gemm.js";
import {
  ArgumentError,
  BackendError,
  DisposedError,
  OutOfMemoryError,
  ShapeError,
} from "../../../src/errors.js";
import { decode, encode } from "../../../src/ops/cast/cast.js";
import { empty, tensor, zeros } from "../../../src/ops/create.js";
import { gemm } from "../../../src/ops/gemm/gemm.js";
import { MXFP8Quantizer } from "../../../src/quantizers/mx.js";
import { Scope } from "../../../src/tensor/scope.js";
import type { Tensor } from "../../../src/tensor/tensor.js";
import { useBackendPerTest } from "../harness/suite.js";

let backend: Backend;
useBackendPerTest((openedBackend) => {
  backend = openedBackend;
});

describe("openBackend", () => {
  it("opens the reference by name, and as auto where there is no GPU", async () => {
    expect(backend).toMatchObject({ name: "wasm", threads: 1, datapath: "hopper" });
    expect(backend.description).toMatch(/1 thread\b/);
    if (missingBackends().length === 0) return;
    const auto = await openBackend("auto", { threads: 2, datapath: "exact" });
    expect(auto).toMatchObject({ name: "wasm", threads: 2, datapath: "exact" });
    await auto.dispose();
  });

  it("the error gives the reason why there is no GPU, and what to open instead", async () => {
    const [missing] = missingBackends();
    if (!missing) return;
    await expect(openBackend("cuda")).rejects.toThrow(BackendError);
    await expect(openBackend("cuda")).rejects.toThrow(missing.reason);
    await expect(openBackend("cuda")).rejects.toThrow(/open "wasm"/);
  });

  it("refuses unknown names and datapaths, and invalid thread counts", async () => {
    await expect(openBackend("metal" as "wasm")).rejects.toThrow(/"metal".*wasm, cuda or auto/);
    for (const threads of [0, 65, 1.5, Number.NaN])
      await expect(openBackend("wasm", { threads })).rejects.toThrow(ArgumentError);
    const openVolta = () => openBackend("wasm", { threads: 1, datapath: "volta" as "ada" });
    await expect(openVolta()).rejects.toThrow(ArgumentError);
    await expect(openVolta()).rejects.toThrow(/"volta".*exact, fp32, ada, hopper, blackwell/);
  });
});

describe("memory", () => {
  it("counts the memory of tensors until they are disposed of", () => {
    const x = tensor(backend, [1, 2, 3]);
    expect(backend.memoryUse()).toMatchObject({ live: 12, blocks: 1 });
    const y = empty(backend, "e2m1", [3, 4]);
    expect(backend.memoryUse()).toMatchObject({ live: 18, blocks: 2 });
    y.dispose();
    y.dispose();
    expect(backend.memoryUse()).toMatchObject({ live: 12, blocks: 1 });
    x.dispose();
  });

  it("a view shares the memory of its tensor, which lives as long as either", () => {
    const x = tensor(backend, [1, 2, 3, 4]);
    const view = x.reshape([2, 2]);
    expect(backend.memoryUse()).toMatchObject({ live: 16, blocks: 1 });
    x.dispose();
    expect(() => x.dataSync()).toThrow(DisposedError);
    expect(view.dataSync()).toEqual(Float32Array.of(1, 2, 3, 4));
    expect(() => view.reshape([3])).toThrow(ShapeError);
    view.dispose();
  });

  it("is copied from and to any element by slice and paste, and viewed if the address is aligned", () => {
    fc.assert(
      fc.property(fc.nat(200), fc.nat(200), fc.nat(200), (elementsBefore, size, elementsAfter) => {
        using _scope = new Scope();
        const values = Float32Array.from({ length: elementsBefore + size + elementsAfter }, (_, i) => i);
        const x = tensor(backend, values);
        const part = x.slice(elementsBefore, [size]);
        expect(part.dataSync()).toEqual(values.slice(elementsBefore, elementsBefore + size));
        part.write(values.slice(elementsBefore, elementsBefore + size).fill(-1));
        expect(x.dataSync()).toEqual(values);
        x.paste(part, elementsBefore);
        expect(x.dataSync()).toEqual(values.fill(-1, elementsBefore, elementsBefore + size));
        if ((elementsBefore * 4) % 256 === 0)
          expect(x.view(elementsBefore, [size]).dataSync()).toEqual(part.dataSync());
        else if (size > 1) expect(() => x.view(elementsBefore, [size])).toThrow("multiple of 256 bytes");
        expect(() => x.slice(elementsBefore + 1, [size + elementsAfter])).toThrow(ShapeError);
        expect(() => x.view(elementsBefore + 1, [size + elementsAfter])).toThrow(ShapeError);
        expect(() => part.paste(x, 1)).toThrow(ShapeError);
        expect(() => x.slice(-1, [1])).toThrow(ShapeError);
      }),
    );
  });

  it("of views of views begins where the views begin together", () => {
    const step = fc.record({ way: fc.constantFrom("view", "slice", "reshape"), skip: fc.nat(3) });
    fc.assert(
      fc.property(fc.array(step, { maxLength: 4 }), fc.nat(64), (steps, extraBytes) => {
        using _scope = new Scope();
        const values = Float32Array.from({ length: 64 * 12 + extraBytes }, (_, i) => i);
        let [x, begin] = [tensor(backend, values) as Tensor, 0];
        for (const { way: operation, skip } of steps) {
          if (operation === "reshape") x = x.reshape([1, x.size]);
          else {
            x = x[operation](64 * skip, [x.size - 64 * skip]);
            begin += 64 * skip;
          }
        }
        expect(x.dataSync()).toEqual(values.slice(begin));
        if (x.size > 0) expect(x.slice(x.size - 1, [1]).dataSync()).toEqual(values.slice(-1));
      }),
    );
  });

  it("of empty tensors takes no bytes, and each still has an address", () => {
    using _scope = new Scope();
    const [x, y] = [empty(backend, "f32", [0]), zeros(backend, "e4m3", [3, 0])];
    expect(x.address).not.toBe(y.address);
    expect(backend.memoryUse()).toMatchObject({ live: 0, blocks: 2 });
  });

  it("that is reserved is never less than the live memory", () => {
    using _scope = new Scope();
    zeros(backend, "u8", [2 ** 22]);
    const { live, reserved } = backend.memoryUse();
    expect(reserved).toBeGreaterThanOrEqual(live);
  });

  it("is not allocated when data do not fit the shape", () => {
    expect(() => tensor(backend, [1, 2, 3], [2, 2])).toThrow(ShapeError);
    expect(() => tensor(backend, [1], [1], "e4m3")).toThrow(ArgumentError);
    for (const shape of [[-1], [1.5], [Number.NaN]])
      expect(() => empty(backend, "f32", shape)).toThrow(ShapeError);
  });

  it("that cannot be allocated is an error, after which everything works as before", () => {
    using _scope = new Scope();
    const x = tensor(backend, [1, -2]);
    const liveBefore = backend.memoryUse();
    for (const attempt of [
      () => empty(backend, "f32", [2 ** 20, 2 ** 20]),
      () => empty(backend, "u8", [2 ** 31]),
      () => new MXFP8Quantizer({ columnwise: true }).makeEmpty(backend, [2 ** 15, 2 ** 15]),
    ]) {
      expect(attempt).toThrow(OutOfMemoryError);
      expect(backend.memoryUse()).toEqual(liveBefore);
    }
    expect(decode(encode(x, { format: "e4m3" })).dataSync()).toEqual(Float32Array.of(1, -2));
  });

  it("an allocation that fails reports the requested and the live bytes; disposing frees memory for it", () => {
    const size = 900_000_000;
    using scope = new Scope();
    const tensors: Tensor[] = [];
    const fill = (): void => {
      for (let i = 0; i < 5; i++) tensors.push(empty(backend, "u8", [size]));
    };
    expect(fill).toThrow(OutOfMemoryError);
    expect(fill).toThrow(`wanted ${size} bytes with ${tensors.length * size} bytes live; dispose`);
    tensors.pop()?.dispose();
    tensors.push(empty(backend, "u8", [size]));
    scope.dispose();
    expect(tensors.every(({ disposed }) => disposed)).toBe(true);
  });
});

describe("scopes", () => {
  it("dispose of tensors that were created in them and not kept", () => {
    const make = (): [Tensor, Tensor] => {
      using scope = new Scope();
      const [x, y] = [tensor(backend, [1]), tensor(backend, [2])];
      return [x, scope.keep(y)];
    };
    const [disposedTensor, survivor] = make();
    expect([disposedTensor.disposed, survivor.disposed]).toEqual([true, false]);
    survivor.dispose();
  });

  it("move kept tensors to the enclosing scope", () => {
    const outer = new Scope();
    const inner = new Scope();
    const x = inner.keep(tensor(backend, [1]));
    const y = tensor(backend, [2]);
    inner.dispose();
    expect([x.disposed, y.disposed]).toEqual([false, true]);
    outer.dispose();
    expect(x.disposed).toBe(true);
  });

  it("do not dispose of tensors that were created before them, even if these are kept", () => {
    const x = tensor(backend, [1]);
    const scope = new Scope();
    scope.keep(x);
    scope.dispose();
    expect(x.disposed).toBe(false);
    x.dispose();
  });

  it("may be closed twice, and may own tensors that were disposed of explicitly", () => {
    const scope = new Scope();
    const x = tensor(backend, [1]);
    x.dispose();
    scope.dispose();
    scope.dispose();
    const y = tensor(backend, [1]);
    expect(y.disposed).toBe(false);
    y.dispose();
  });

  it("that are closed out of order own what was created while they were the innermost", () => {
    const [outer, inner] = [new Scope(), new Scope()];
    outer.dispose();
    const x = tensor(backend, [1]);
    inner.dispose();
    expect(x.disposed).toBe(true);
  });

  it("end when an error leaves them", () => {
    const fail = (): void => {
      using _scope = new Scope();
      encode(tensor(backend, [1]), { format: "nonsense" });
    };
    expect(fail).toThrow(ArgumentError);
    expect(backend.memoryUse().blocks).toBe(0);
  });

  it("are not needed for a single tensor: `using` disposes of it", () => {
    {
      using x = tensor(backend, [1]);
      expect(x.disposed).toBe(false);
    }
    expect(backend.memoryUse().blocks).toBe(0);
  });
});

describe("a backend that is disposed of", () => {
  it("throws in every later call, and its tensors can still be disposed of", async () => {
    const closedBackend = await openBackend("wasm", { threads: 2 });
    const x = tensor(closedBackend, [1]);
    await closedBackend.dispose();
    await closedBackend.dispose();
    for (const attempt of [
      () => x.dataSync(),
      () => x.write(Float32Array.of(2)),
      () => tensor(closedBackend, [1]),
      () => encode(x, { format: "e4m3" }),
    ]) {
      expect(attempt).toThrow(DisposedError);
      expect(attempt).toThrow(/wasm backend/);
    }
    await expect(x.data()).rejects.toThrow(DisposedError);
    x.dispose();
    expect(closedBackend.memoryUse()).toMatchObject({ live: 0, blocks: 0 });
  });
});

describe("supports", () => {
  type Element = "f32" | "e4m3" | "tf32" | "bf16";
  const answer = (datapath: Backend["datapath"], format: Element) => {
    using _scope = new Scope();
    const operand: GemmOperand = { data: zeros(backend, format, [16, 32]), traits: { format } };
    const out = zeros(backend, "f32", [16, 16]);
    const options = { splitAccumulator: false, splitK: 1, alpha: 1, beta: 0, outScale: 1 };
    return backend.supports("gemm", { ...options, x: operand, w: operand, datapath, out });
  };

  it("refuses f32 on tensor cores, with the reason and what to do", () => {
    expect(answer("hopper", "f32")).toMatchObject({ ok: false, reason: /tf32.*use datapath fp32 or exact/ });
    using _scope = new Scope();
    const x = zeros(backend, "f32", [16, 32]);
    expect(() => gemm({ a: x, b: x, datapath: "hopper" })).toThrow(
      expect.objectContaining({ code: "UNSUPPORTED", op: "gemm", reason: expect.stringMatching(/tf32/) }),
    );
  });

  it("returns a reason for every combination that it refuses", () => {
    for (const datapath of ["ada", "hopper", "blackwell"] as const) {
      const support = answer(datapath, "f32");
      expect(support.ok ? "" : support.reason).toMatch(/use datapath/);
    }
    expect(answer("blackwell", "tf32")).toMatchObject({ ok: false });
  });

  it("promises equal bits only for measured hardware, or if arithmetic defines the result", () => {
    for (const datapath of ["exact", "fp32", "hopper"] as const) {
      expect(answer(datapath, "e4m3")).toMatchObject({ ok: true, agrees: "bits" });
      expect(answer(datapath, "e4m3")).not.toHaveProperty("unverified");
    }
    expect(answer("fp32", "f32")).toMatchObject({ ok: true, agrees: "bits" });
  });

  it("reports published models as unverified", () => {
    for (const datapath of ["ada", "blackwell"] as const) {
      for (const format of ["e4m3", "bf16"] as const)
        expect(answer(datapath, format)).toMatchObject({ ok: true, unverified: /arXiv 2511\.10909/ });
    }
  });

  it("does not promise the bits of tf32, whose rule was seen for some shapes only", () => {
    expect(answer("hopper", "tf32")).toMatchObject({
      ok: true,
      agrees: { approximate: /512x512x1024.*128x128/ },
    });
  });
});
