/**
 * A quantization that fails releases everything that it allocated, even if no scope is open. Tensors of the caller stay
 * unchanged.
 */
import { describe, expect, it } from "vitest";
import type { Backend } from "../../../../src/backends/backend.js";
import { OutOfMemoryError, UnsupportedError } from "../../../../src/errors.js";
import { BLOCK_FORMAT_NAMES, type BlockFormatName, blockFormat } from "../../../../src/formats/block.js";
import { fromBytes, zeros } from "../../../../src/ops/create.js";
import { layerNorm } from "../../../../src/ops/rows/norm.js";
import { quantizerNamed } from "../../../../src/quantizers/named.js";
import type { Quantizer } from "../../../../src/quantizers/quantizer.js";
import { Scope } from "../../../../src/tensor/scope.js";
import type { Tensor } from "../../../../src/tensor/tensor.js";
import { GuardedBackend } from "../../../operations/guarded.js";
import { useBackend } from "../../harness/suite.js";

const backend = useBackend();

/** A backend that fails at a chosen allocation, in `supports`, or in `run`. */
class Failing extends GuardedBackend {
  allocations = Number.POSITIVE_INFINITY;
  refuses = false;
  breaks = false;
  allocationCount = 0;

  constructor(inner: Backend) {
    super(inner);
    const { allocate } = this.memory;
    this.memory.allocate = (bytes) => {
      if (this.allocationCount++ === this.allocations) throw new OutOfMemoryError(bytes, 0, "for this test");
      return allocate(bytes);
    };
  }

  override supports(...call: Parameters<Backend["supports"]>): ReturnType<Backend["supports"]> {
    return this.refuses ? { ok: false, reason: "for this test" } : super.supports(...call);
  }

  override run(...call: Parameters<Backend["run"]>): void {
    if (this.breaks) throw new RangeError("for this test");
    super.run(...call);
  }

  /** Runs `work` with a fault. Allocations are counted from the start of `work`. */
  during(fault: Partial<Pick<Failing, "allocations" | "refuses" | "breaks">>, work: () => void): void {
    this.allocationCount = 0;
    Object.assign(this, fault);
    try {
      work();
    } finally {
      Object.assign(this, { allocations: Number.POSITIVE_INFINITY, refuses: false, breaks: false });
    }
  }
}

type Work = (quantizer: Quantizer, x: Tensor, gamma: Tensor) => unknown;

/** Functions that create quantized tensors, and whether each runs an operation. */
const WORKS: Readonly<Record<string, { readonly work: Work; readonly runs: boolean }>> = {
  makeEmpty: { work: (q, x) => q.makeEmpty(x.backend, x.shape), runs: false },
  quantize: { work: (q, x) => q.quantize(x), runs: true },
  activationQuantize: { work: (q, x) => q.activationQuantize(x, { kind: "relu" }), runs: true },
  normQuantize: { work: (q, x, gamma) => q.normQuantize(x, { gamma, beta: gamma }), runs: true },
  biasGradQuantize: { work: (q, x) => q.biasGradQuantize(x), runs: true },
  layerNorm: { work: (_, x, gamma) => layerNorm(x, gamma, gamma), runs: true },
};

const CASES = BLOCK_FORMAT_NAMES.flatMap((name) =>
  Object.entries(WORKS).map(([call, { work, runs }]) => [name, call, work, runs] as const),
);

describe("a quantization that fails leaks no memory,", () => {
  it.each(CASES)("%s: %s", (name, _, work, runs) => {
    const failingBackend = new Failing(backend());
    using scope = new Scope();
    const x = zeros(failingBackend, "bf16", [32, 32]);
    const gamma = zeros(failingBackend, "bf16", [32]);
    const tensorOptions = settingsOf(name, failingBackend);
    const quantizer = quantizerNamed(name, { rowwise: true, columnwise: true, ...tensorOptions });
    for (const disposable of [x, gamma, ...Object.values(tensorOptions)]) scope.release(disposable);
    scope.dispose();
    const useBefore = failingBackend.memoryUse();
    const expectFailure = (
      fault: Parameters<Failing["during"]>[0],
      error: abstract new (...args: never[]) => Error,
    ): void => {
      failingBackend.during(fault, () => expect(() => work(quantizer, x, gamma)).toThrow(expect.any(error)));
      expect(failingBackend.memoryUse()).toMatchObject({ live: useBefore.live, blocks: useBefore.blocks });
    };
    using keptScope = new Scope();
    failingBackend.during({}, () => work(quantizer, x, gamma));
    keptScope.dispose();
    expect(failingBackend.allocationCount).toBeGreaterThanOrEqual(2);
    for (let allocation = failingBackend.allocationCount - 1; allocation >= 0; allocation--)
      expectFailure({ allocations: allocation }, OutOfMemoryError);
    if (runs) expectFailure({ refuses: true }, UnsupportedError);
    if (runs) expectFailure({ breaks: true }, RangeError);
    for (const disposable of [x, gamma, ...Object.values(tensorOptions)]) disposable.dispose();
  });
});

function settingsOf(name: BlockFormatName, tensorBackend: Backend): Record<string, Tensor<"f32">> {
  if (blockFormat(name).scaleSource !== "given") return {};
  const bytes = (): Uint8Array => new Uint8Array(Float32Array.of(1).buffer);
  return {
    scale: fromBytes(tensorBackend, bytes(), [1], "f32"),
    amax: fromBytes(tensorBackend, bytes(), [1], "f32"),
  };
}
