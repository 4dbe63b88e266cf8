/** A captured graph does nothing until it is replayed; a replay then has the same effect as running the operations. */
import { describe, expect, it } from "vitest";
import { autocast } from "../../../src/autocast.js";
import type { Backend } from "../../../src/backends/backend.js";
import { openBackend } from "../../../src/backends/open.js";
import { ArgumentError, DisposedError, UnsupportedError } from "../../../src/errors.js";
import { Linear } from "../../../src/modules/linear.js";
import { encode } from "../../../src/ops/cast/cast.js";
import { empty, tensor, zeros } from "../../../src/ops/create.js";
import { add } from "../../../src/ops/elementwise/operators.gen.js";
import { captureGraph } from "../../../src/ops/graph.js";
import { AdamW } from "../../../src/optimizers/adamw.js";
import { SGD } from "../../../src/optimizers/sgd.js";
import { MXFP8Quantizer } from "../../../src/quantizers/mx.js";
import { DelayedScaling } from "../../../src/recipes/per-tensor.js";
import { Variable } from "../../../src/tape/variable.js";
import { Scope } from "../../../src/tensor/scope.js";
import type { Tensor } from "../../../src/tensor/tensor.js";
import { LAWS } from "../../laws/laws.js";
import { backendSubject, ORACLE } from "../../operations/operations.js";
import { derivedSeed, draws, sampleCases } from "../harness/draws.js";
import { ReplayingBackend } from "../harness/graph/replaying.js";
import { compareCallsWithReplays } from "../harness/graph/step.js";
import { DETERMINISTIC_RECIPES } from "../harness/recipes.js";
import { useBackendPerTest } from "../harness/suite.js";

let backend: Backend;
useBackendPerTest((openedBackend) => {
  backend = openedBackend;
});

describe("a replay", () => {
  const comparedLaws = LAWS.filter(({ compares }) => compares);

  it.each(
    sampleCases(
      comparedLaws.map((law) => [law.name, law] as const),
      12,
    ),
  )("of one operation: %s", async (_, law) => {
    const replayingBackend = new ReplayingBackend(backend);
    const result = await law.check(backendSubject(replayingBackend), ORACLE, {
      runs: draws(10),
      seed: derivedSeed(1),
    });
    expect(result.failure).toBeUndefined();
    if (law.operation !== "adamw") expect(replayingBackend.replayed.size).toBeGreaterThan(0);
  });

  it.each(sampleCases(Object.entries(DETERMINISTIC_RECIPES), 2))(
    "of a training step under %s gives the bits of the step",
    (_, recipe) => {
      const steps = compareCallsWithReplays(backend, recipe, 4);
      for (const { eager, again: replayed } of steps) expect(replayed).toEqual(eager);
      expect(steps[1]).not.toEqual(steps[0]);
    },
  );

  it.each(sampleCases(Object.entries(DETERMINISTIC_RECIPES), 4))(
    "of a first training step under %s gives the bits of the step, unless the capture is refused",
    (name, recipe) => {
      const steps = () => compareCallsWithReplays(backend, recipe, 4, 0);
      if (recipe() instanceof DelayedScaling) expect(steps).toThrow(UnsupportedError);
      else for (const { eager, again: replayed } of steps()) expect(replayed, name).toEqual(eager);
    },
  );

  it("a replay reads the current contents, and writes to the tensors of the capture", () => {
    using _ = new Scope();
    const x = tensor(backend, [1, 2, 3]);
    using graph = captureGraph(backend, () => add(x, tensor(backend, [10, 20, 30])));
    x.write(Float32Array.of(4, 5, 6));
    expect(Array.from(graph.replay().result.dataSync())).toEqual([14, 25, 36]);
    x.write(Float32Array.of(0, 0, 1));
    graph.replay().replay();
    expect(Array.from(graph.result.dataSync())).toEqual([10, 20, 31]);
  });

  it("a replay writes the bytes of the capture, even if the caller has changed them since", () => {
    using _ = new Scope();
    const bytes = Float32Array.of(1, 2, 3);
    const x = zeros(backend, "f32", [3]);
    using graph = captureGraph(backend, () => {
      x.write(bytes);
      bytes.fill(9);
    });
    bytes.fill(8);
    graph.replay();
    expect([...x.dataSync()]).toEqual([1, 2, 3]);
  });

  it("the capture itself changes no tensor", () => {
    using _ = new Scope();
    const x = tensor(backend, [1, 2, 3]);
    const y = tensor(backend, [5]);
    using graph = captureGraph(backend, () => {
      x.paste(add(x, x) as Tensor<"f32">, 0);
      y.write(Float32Array.of(7));
      x.paste(y, 1);
    });
    expect([...x.dataSync(), ...y.dataSync()]).toEqual([1, 2, 3, 5]);
    graph.replay().replay();
    expect([...x.dataSync(), ...y.dataSync()]).toEqual([4, 7, 12, 7]);
  });

  it("works after every tensor of the captured body and around it was disposed of", () => {
    const x = tensor(backend, [1, 2, 3]);
    const out = zeros(backend, "f32", [3]);
    const graph = captureGraph(backend, () => {
      using _ = new Scope();
      const [twice, copy] = [add(x, x), x.clone()];
      out.paste(add(twice, copy) as Tensor<"f32">, 0);
    });
    const result = out.reshape([3]);
    for (const tensor of [x, out]) tensor.dispose();
    // takes the freed tensors' memory
    using otherTensor = tensor(backend, [-1, -1, -1]);
    graph.replay();
    expect(Array.from(result.dataSync())).toEqual([3, 6, 9]);
    expect(Array.from(otherTensor.dataSync())).toEqual([-1, -1, -1]);
    result.dispose();
    graph.dispose();
  });

  it("a replay of a disposed graph, or of one with a disposed backend, is refused", async () => {
    const otherBackend = await openBackend("wasm", { threads: 1 });
    using x = tensor(otherBackend, [1]);
    const [graph, disposed] = [0, 1].map(() => captureGraph(otherBackend, () => add(x, x, { out: x }))) as [
      ReturnType<typeof captureGraph>,
      ReturnType<typeof captureGraph>,
    ];
    disposed.dispose();
    disposed.dispose();
    expect(() => disposed.replay()).toThrow(DisposedError);
    await otherBackend.dispose();
    expect(() => graph.replay()).toThrow(DisposedError);
    graph.dispose();
  });
});

describe("a capture", () => {
  /** Captures `body`, which must throw `error` and leave no memory allocated. */
  function expectRefusal(body: () => unknown, error: new (...args: never[]) => Error): void {
    const useBefore = backend.memoryUse();
    {
      using _ = new Scope();
      expect(() => captureGraph(backend, body)).toThrow(error);
      // the backend still works
      expect(Array.from(add(tensor(backend, [1]), tensor(backend, [2])).dataSync())).toEqual([3]);
    }
    expect(backend.memoryUse()).toMatchObject({ live: useBefore.live, blocks: useBefore.blocks });
  }

  it("refuses a body that reads, captures, waits or throws", () => {
    using x = tensor(backend, [1, 2]);
    expectRefusal(() => x.dataSync(), ArgumentError);
    expectRefusal(() => add(x, x).toString() && add(x, x).dataSync(), ArgumentError);
    expectRefusal(() => captureGraph(backend, () => add(x, x)), ArgumentError);
    expectRefusal(async () => add(x, x), ArgumentError);
    expectRefusal(() => {
      add(x, x);
      throw new RangeError("the body's own");
    }, RangeError);
    expectRefusal(() => add(x, empty(backend, "f32", [3])), Error);
    expect(Array.from(x.dataSync())).toEqual([1, 2]);
  });

  it("rejects an asynchronous read in the body", async () => {
    using x = tensor(backend, [1, 2]);
    let pendingRead: Promise<unknown> = Promise.resolve();
    using graph = captureGraph(backend, () => {
      pendingRead = x.data();
      pendingRead.catch(() => {});
    });
    await expect(pendingRead).rejects.toThrow(ArgumentError);
    graph.replay();
  });

  it("captures stochastic rounding by the caller's random bits, which a replay reads again", () => {
    using x = tensor(backend, new Float32Array(32).fill(1.05), [1, 32]);
    using bits = tensor(backend, new Uint32Array(32), [1, 32], "u32");
    const quantizer = new MXFP8Quantizer({ stochastic: true });
    using target = quantizer.makeEmpty(backend, [1, 32], "f32");
    expectRefusal(() => quantizer.updateQuantized(x, target), UnsupportedError);
    using graph = captureGraph(backend, () => quantizer.updateQuantized(x, target, { randomBits: bits }));
    const codes = (wordBits: number): Set<number> => {
      bits.write(new Uint32Array(32).fill(wordBits));
      graph.replay();
      return new Set(target.copy("rowwise").data.dataSync());
    };
    const [roundedDown, roundedUp] = [codes(0), codes(0xffffffff)];
    expect([roundedDown.size, roundedUp.size]).toEqual([1, 1]);
    expect([...roundedUp]).toEqual([...roundedDown].map((code) => code + 1));
  });

  it("refuses operations whose counts or random bits the host changes in every call", () => {
    using x = tensor(backend, [1, 2]);
    expectRefusal(() => encode(x, { format: "e4m3", rounding: "stochastic" }), UnsupportedError);
    using layer = new Linear(backend, 16, 16, { dtype: "f32" });
    const pass = (): void => {
      using _ = new Scope();
      layer.forward(zeros(backend, "f32", [16, 16])).backward(zeros(backend, "f32", [16, 16]));
    };
    for (const optimizer of [
      new AdamW(layer, { learningRate: 1e-3 }),
      new SGD(layer, { learningRate: 1e-3, momentum: 0.9 }),
    ]) {
      using owner = optimizer;
      pass();
      expectRefusal(() => owner.step(), UnsupportedError);
      owner.zeroGrad();
    }
    using plainOptimizer = new SGD(layer, { learningRate: 1e-3 });
    pass();
    using graph = captureGraph(backend, () => plainOptimizer.step());
    graph.replay();
    plainOptimizer.zeroGrad();
  });

  it("refuses scales computed by a caller's function, because that function reads amaxes on the host", () => {
    using layer = new Linear(backend, 16, 16, { dtype: "f32" });
    const recipe = new DelayedScaling({ amaxComputeAlgo: (history) => history[0] as number });
    using x = zeros(backend, "f32", [16, 16]);
    const pass = (): void => {
      using _ = new Scope();
      autocast({ recipe }, () => layer.forward(new Variable(x, true)));
    };
    pass();
    expectRefusal(pass, ArgumentError);
  });

  it("by a backend that does not call the body is refused, and its work is freed", () => {
    let freedBytes = 0;
    const work = { replay: () => undefined, dispose: () => void freedBytes++ };
    const idle: Backend = Object.create(backend, { capture: { value: () => work } });
    expect(() => captureGraph(idle, () => 1)).toThrow(ArgumentError);
    expect(() => captureGraph(idle, () => 1)).toThrow(/did not call the body/);
    expect(freedBytes).toBe(2);
  });

  it("is refused on a backend without graphs", () => {
    const { memory, run, supports } = backend;
    const without = { ...backend, name: "plain", memory, run, supports } as Backend;
    expect(() => captureGraph(without, () => undefined)).toThrow(UnsupportedError);
  });
});
