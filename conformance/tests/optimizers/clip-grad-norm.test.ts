/** The norm of gradients that tensor parallelism, `fullyShard` and pipelines have distributed over ranks. */
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { Backend } from "../../../src/backends/backend.js";
import { loopbackOver } from "../../../src/collectives/loopback/loopback.js";
import {
  ArgumentError,
  clipGradNorm,
  fullyShard,
  functional,
  LayerNormMLP,
  Linear,
  normal,
  Pipeline,
  type ProcessGroup,
  Scope,
  Sequential,
  SGD,
  type Shape,
  type Tensor,
  tensor,
  type Variable,
  type WideDType,
} from "../../../src/index.js";
import { persistent } from "../../../src/modules/parameter.js";
import { castTo } from "../../../src/ops/cast/cast.js";
import { gradNorm } from "../../../src/ops/update/grad-norm.js";
import { type TensorPart, wholePart } from "../../../src/tensor/part.js";
import { elementCount } from "../../../src/tensor/shape.js";
import { pieceSums, sumPieces } from "../../oracle/update/grad-norm.js";
import { draws } from "../harness/draws.js";
import { useBackends } from "../harness/ranks/backends.js";
import {
  type DividedNet,
  type Division,
  dividedNets,
  divisions,
  elementsOfPart,
  MOST,
} from "./divided-net.js";

const backends = useBackends(MOST);

interface Case extends Division {
  /** The dtypes of the gradients, used alternately. */
  readonly dtypes: readonly WideDType[];
  readonly maxNorm: number;
  readonly planted: number | undefined;
  readonly seed: number;
}

const cases: fc.Arbitrary<Case> = fc
  .record({
    tp: fc.constantFrom(1, 2, 4),
    dp: fc.constantFrom(1, 2),
    replicate: fc.constantFrom(1, 1, 2),
    isSharded: fc.boolean(),
    features: fc.constantFrom(16, 48, 80),
    hidden: fc.constantFrom(32, 96, 208),
    dtypes: fc.array(fc.constantFrom<WideDType>("f32", "bf16"), { minLength: 1, maxLength: 3 }),
    maxNorm: fc.constantFrom(0, 0.01, 1, 1e6),
    planted: fc.constantFrom(undefined, undefined, 2 ** 70, Number.NaN),
    seed: fc.nat(1000),
  })
  .filter(({ tp, dp, replicate }) => tp * dp * replicate <= MOST);

const dtypeOf = ({ dtypes }: Case, i: number): WideDType => dtypes[i % dtypes.length] as WideDType;

/** Returns the gradient of a full parameter, drawn by the parameter's number. */
const gradValues = ({ seed, planted: plantedValue }: Case, shape: Shape, i: number): Float32Array => {
  const values = normal({ seed: BigInt(seed), offset: BigInt(4096 * i) }, elementCount(shape), 4);
  if (plantedValue !== undefined && i === 3) values[seed % values.length] = plantedValue;
  return values;
};

/** Every way to divide parameters among ranks, with parts that end within pieces and gradients of two dtypes. */
const EXAMPLES: readonly Case[] = divisions(80, 208).map((division) => ({
  ...division,
  ...{ seed: 1, dtypes: ["f32", "bf16"], maxNorm: 0.01, planted: undefined },
}));

describe("clipGradNorm of distributed gradients", () => {
  it("equals the norm of one process with the full gradients to the bit, on every rank", async () => {
    await fc.assert(
      fc.asyncProperty(cases, async (testCase) => {
        const { maxNorm } = testCase;
        const nets = dividedNets(backends, testCase, "f32");
        const results = nets.map((net) => {
          using _ = new Scope();
          for (const [i, parameter] of net.parameters().entries()) {
            const part = parameter.part ?? wholePart(parameter.shape);
            const values = Float32Array.from(elementsOfPart(gradValues(testCase, part.shape, i), part));
            parameter.grad = persistent(
              castTo(tensor(net.backend, values, parameter.shape), dtypeOf(testCase, i)),
            );
          }
          const { norm, factor } = clipGradNorm(net, maxNorm);
          return [persistent(norm), persistent(factor)] as const;
        });
        const norms = [];
        for (const [norm, factor] of results) norms.push([...(await norm.data()), ...(await factor.data())]);
        const shapes = (nets[0] as DividedNet).parameters().map(({ part, shape }) => part?.shape ?? shape);
        for (const disposable of [...results.flat(), ...nets]) disposable.dispose();

        using _ = new Scope();
        const backend = backends[0] as Backend;
        const allGrads = shapes.map((shape, i) =>
          castTo(tensor(backend, gradValues(testCase, shape, i), shape), dtypeOf(testCase, i)),
        );
        const { norm, factor } = gradNorm(allGrads, { maxNorm });
        expect(norms).toEqual(nets.map(() => [...norm.dataSync(), ...factor.dataSync()]));
      }),
      { numRuns: draws(60, EXAMPLES.length + 2), examples: EXAMPLES.map((example) => [example]) },
    );
  });

  it("counts each piece once, wherever the rows of ranks end", async () => {
    const groups = loopbackOver(backends.slice(0, 4), 20_000);
    // the pieces of 4096 elements begin where a rank's rows end, within its rows, or both
    const grid = [
      { columns: 1024, rows: 12, rowMultiple: 4 },
      { columns: 512, rows: 24, rowMultiple: 8 },
      { columns: 2048, rows: 6, rowMultiple: 2 },
      { columns: 1024, rows: 10, rowMultiple: 1 },
      { columns: 4096, rows: 4, rowMultiple: 1 },
      { columns: 1000, rows: 14, rowMultiple: 4 },
    ];
    for (const { columns, rows, rowMultiple } of grid) {
      const fullValues = normal({ seed: 6n, offset: BigInt(rows * columns) }, rows * columns, 1);
      const norms = groups.map((group) => {
        const { tp, dp } = group.split({ tp: 2, dp: 2 });
        const options = { dtype: "f32", bias: false, group: tp, parallelMode: "column" } as const;
        const layer = new Linear(group.backend, columns, rows, options);
        fullyShard(layer, dp, { rowMultiple });
        const { weight } = layer;
        const values = Float32Array.from(elementsOfPart(fullValues, weight.part as TensorPart));
        weight.grad = persistent(tensor(group.backend, values, weight.shape));
        const { norm, factor } = clipGradNorm(layer, 1);
        factor.dispose();
        return { norm, layer };
      });
      const expected = Math.fround(Math.sqrt(sumPieces([sumPieces(pieceSums([...fullValues]))])));
      for (const { norm } of norms)
        expect([...(await norm.data())], `${rows} x ${columns}`).toEqual([expected]);
      for (const disposable of norms.flatMap(({ norm, layer }) => [norm, layer])) disposable.dispose();
    }
  });

  it("of a pipeline's stages adds the squares within each stage, then the sums of the stages", async () => {
    const groups = loopbackOver(backends.slice(0, 3), 20_000);
    const stages = groups.map(({ backend }, rank) => {
      const stage = new Linear(backend, 64, 64 + 16 * rank, { dtype: "f32" });
      // a frozen stage has no gradients, and calls clipGradNorm too
      if (rank === 1) for (const parameter of stage.parameters()) parameter.requiresGrad = false;
      return stage;
    });
    const grads = stages.map((stage, rank) =>
      stage
        .parameters()
        .map(({ shape }, i) =>
          normal({ seed: 5n, offset: BigInt(8192 * (3 * rank + i)) }, elementCount(shape), 1),
        ),
    );
    const norms = groups.map((group, rank) => {
      const stage = stages[rank] as Linear;
      const loss = () => functional.mseLoss(stage.forward(new Float32Array(0) as never), undefined as never);
      new Pipeline(stage, group, { microbatches: 2, input: { shape: [16, 64] }, loss });
      for (const [i, parameter] of stage.parameters().entries())
        if (parameter.requiresGrad)
          parameter.grad = persistent(
            tensor(stage.backend, grads[rank]?.[i] as Float32Array, parameter.shape),
          );
      using optimizer = new SGD(stage, { learningRate: 0.1 });
      return clipGradNorm(optimizer, 0.5);
    });
    const totals = grads.map((grad, rank) =>
      rank === 1 ? 0 : sumPieces(grad.map((grad) => sumPieces(pieceSums([...grad])))),
    );
    const norm = Math.fround(Math.sqrt(sumPieces(totals)));
    for (const rankNorm of norms) {
      expect([...(await rankNorm.norm.data())]).toEqual([norm]);
      expect([...(await rankNorm.factor.data())]).toEqual([
        Math.fround(0.5 / Math.fround(norm + Math.fround(1e-6))),
      ]);
    }
    for (const disposable of [...norms.flatMap(({ norm, factor }) => [norm, factor]), ...stages])
      disposable.dispose();
  });

  it("keeps parameters that tensor parallelism replicates equal on all ranks after clipped steps", async () => {
    const groups = loopbackOver(backends.slice(0, 4), 20_000);
    const meshes = groups.map((group) => group.split({ tp: 2, dp: 2 }));
    const steps = meshes.map(({ tp, dp }) => {
      const { backend } = tp;
      const mlp = new LayerNormMLP(backend, 32, 64, { group: tp, dtype: "f32" });
      fullyShard(mlp, dp);
      using optimizer = new SGD(mlp, { learningRate: 0.1 });
      using _ = new Scope();
      const x = tensor(backend, normal({ seed: 2n, offset: BigInt(512 * dp.rank) }, 512, 1), [16, 32]);
      functional.mseLoss(mlp.forward(x), x).backward();
      const { factor } = clipGradNorm(optimizer, 0.01);
      optimizer.step({ gradScale: factor });
      return mlp;
    });
    const norms = [];
    for (const mlp of steps)
      norms.push([...(await (mlp.layerNormWeight.localValue as Tensor<"f32">).data())]);
    expect(norms[1]).toEqual(norms[0]);
    expect(norms[3]).toEqual(norms[2]);
    for (const mlp of steps) mlp.dispose();
  });

  it("refuses the parameters of several pipelines, and none that has a gradient", () => {
    const groups = loopbackOver(backends.slice(0, 2), 20_000);
    const [pp] = groups.map((group) => group.split({ pp: 2 }).pp) as [ProcessGroup];
    const [group] = groups as [ProcessGroup];
    const [firstLayer, two] = [0, 1].map(() => new Linear(group.backend, 16, 16)) as [Linear, Linear];
    expect(() => clipGradNorm(firstLayer, 1)).toThrow(ArgumentError);
    new Pipeline(firstLayer, group, { microbatches: 1 });
    new Pipeline(two, pp, { microbatches: 1 });
    const secondLayer = new Sequential(group.backend, firstLayer, two);
    expect(() => clipGradNorm(secondLayer, 1)).toThrow(/several pipelines/);
    secondLayer.dispose();
    const [only] = loopbackOver(backends.slice(0, 1), 20_000) as [ProcessGroup];
    const model = new Linear(only.backend, 16, 16);
    const loss = (y: Variable): Variable => y;
    new Pipeline(model, only, { microbatches: 1, loss });
    expect(() => clipGradNorm(model, 1)).toThrow(/no parameter has a gradient/);
    model.dispose();
  });
});
