/**
 * CUDA graphs: a captured graph does nothing until it is replayed; a replay gives the same bits as running the
 * operations.
 */
import { expect, it } from "vitest";
import { openBackend } from "../../../src/backends/open.js";
import { ArgumentError, DisposedError, OutOfMemoryError, UnsupportedError } from "../../../src/errors.js";
import { encode } from "../../../src/ops/cast/cast.js";
import { tensor } from "../../../src/ops/create.js";
import { add } from "../../../src/ops/elementwise/operators.gen.js";
import { gemm } from "../../../src/ops/gemm/gemm.js";
import { captureGraph, type Graph } from "../../../src/ops/graph.js";
import { Scope } from "../../../src/tensor/scope.js";
import { Tensor } from "../../../src/tensor/tensor.js";
import { LAWS, over } from "../../laws/laws.js";
import { inputsFor } from "../../laws/run.js";
import { backendSubject } from "../../operations/operations.js";
import { describeOnGpu, RUNS, SEED, useGpu } from "../harness/gpu/gpu.js";
import { ReplayingBackend } from "../harness/graph/replaying.js";
import { compareCallsWithReplays } from "../harness/graph/step.js";
import { DETERMINISTIC_RECIPES } from "../harness/recipes.js";

describeOnGpu("a graph on a GPU", () => {
  const { gpu, reference } = useGpu();

  it.each(LAWS.filter(({ compares }) => compares).map((law) => [law.name, law] as const))(
    "replays one operation: %s",
    async (_, law) => {
      const replaying = new ReplayingBackend(gpu());
      const runs = Math.ceil(RUNS / 2);
      const subjects = [backendSubject(replaying), backendSubject(reference())] as const;
      const result = await over(inputsFor(gpu()), law).check(...subjects, { runs, seed: SEED });
      expect(result.failure).toBeUndefined();
      if (law.operation !== "adamw") expect(replaying.replayed.size).toBeGreaterThan(0);
    },
  );

  it.each(Object.entries(DETERMINISTIC_RECIPES))(
    "replays a training step under %s: the step's bits",
    (_, recipe) => {
      const steps = compareCallsWithReplays(gpu(), recipe, 4);
      for (const { eager, again } of steps) expect(again).toEqual(eager);
      expect(steps.map(({ eager }) => eager)).toEqual(
        compareCallsWithReplays(reference(), recipe, 4).map(({ eager }) => eager),
      );
    },
  );

  it("has memory that no tensor allocated during or after the capture gets", () => {
    const x = tensor(
      gpu(),
      Float32Array.from({ length: 2 ** 20 }, (_, i) => i % 251),
    );
    const graph = captureGraph(gpu(), () => {
      using scope = new Scope();
      const twice = add(x, x);
      const out = add(add(twice, x), x.clone());
      return scope.keep(out);
    });
    const result = graph.result;
    x.dispose();
    const others = Array.from({ length: 20 }, (_, i) =>
      new Tensor(gpu(), "f32", [2 ** 20]).write(new Float32Array(2 ** 20).fill(i)),
    );
    graph.replay().replay();
    expect(Array.from(result.dataSync().subarray(0, 1000))).toEqual(
      Array.from({ length: 1000 }, (_, i) => 4 * (i % 251)),
    );
    for (const [i, other] of others.entries())
      expect(other.dataSync().every((value) => value === i)).toBe(true);
    graph.dispose();
    for (const other of others) other.dispose();
    expect(result.dataSync()[250]).toBe(1000);
    result.dispose();
  });

  it("is independent of others, which may be captured, replayed and disposed of in any order", () => {
    using _ = new Scope();
    const x = tensor(gpu(), [1, 1, 1]);
    const graphs: Graph<unknown>[] = [];
    for (let i = 0; i < 4; i++)
      graphs.push(captureGraph(gpu(), () => x.paste(add(x, tensor(gpu(), [1, 2, i])) as Tensor<"f32">, 0)));
    for (const i of [3, 0, 2, 2, 1]) graphs[i]?.replay();
    expect(Array.from(x.dataSync())).toEqual([6, 11, 1 + 3 + 0 + 2 + 2 + 1]);
    for (const i of [2, 0]) graphs[i]?.dispose();
    for (const i of [1, 3]) graphs[i]?.replay();
    expect(Array.from(x.dataSync())).toEqual([8, 15, 13]);
    for (const graph of graphs) graph.dispose();
  });

  it("refuses what waits or is counted by the host, and goes on working", () => {
    using _ = new Scope();
    const x = tensor(gpu(), [1, 2]);
    const refused: readonly [() => unknown, new (...args: never[]) => Error][] = [
      [() => x.dataSync(), ArgumentError],
      [() => gpu().trim(), ArgumentError],
      [() => gpu().timeline?.mark(), ArgumentError],
      [() => gpu().timeline?.spans(), ArgumentError],
      [() => captureGraph(gpu(), () => add(x, x)), ArgumentError],
      [() => encode(x, { format: "e4m3", rounding: "stochastic" }), UnsupportedError],
      [() => new Tensor(gpu(), "u8", [2 ** 45]), OutOfMemoryError],
      [async () => add(x, x), ArgumentError],
    ];
    for (const [body, error] of refused) {
      const before = gpu().memoryUse();
      expect(() =>
        captureGraph(gpu(), () => {
          using _inner = new Scope();
          add(x, x);
          return body();
        }),
      ).toThrow(error);
      expect(gpu().memoryUse()).toMatchObject({ live: before.live, blocks: before.blocks });
      using sum = add(x, x);
      expect(Array.from(sum.dataSync())).toEqual([2, 4]);
    }
  });

  it("captures products whose plans do not exist yet and whose workspaces grow from one to the next", () => {
    using _ = new Scope();
    const sizes = [256, 528, 1040];
    const operands = sizes.map((n) => {
      const values = Float32Array.from({ length: n * n }, (_, i) => ((i * 7) % 13) - 6);
      return encode(tensor(gpu(), values, [n, n]), { format: "bf16" }) as Tensor<"bf16">;
    });
    const products = () => operands.map((x) => gemm({ a: x, b: x, splitK: 4, outDtype: "f32" }).out);
    using graph = captureGraph(gpu(), products);
    graph.replay();
    for (const [i, out] of products().entries()) expect(graph.result[i]?.dataSync()).toEqual(out.dataSync());
  });

  it("is disposed of with its backend, as are all graphs of that backend", async () => {
    const other = await openBackend("cuda");
    const x = tensor(other, [1]);
    const graphs = [1, 2, 3].map(() => captureGraph(other, () => add(x, x, { out: x })) as Graph<unknown>);
    for (const graph of graphs) graph.replay();
    await other.dispose();
    for (const graph of graphs) {
      expect(() => graph.replay()).toThrow(DisposedError);
      graph.dispose();
    }
    x.dispose();
  });
});
