/**
 * `fullyShard` reduces gradients by its options: the rows of a rank equal the result of `reduceScatter` with the same options.
 */
import { describe, expect, it, vi } from "vitest";
import type { Backend } from "../../../../src/backends/backend.js";
import type { ProcessGroup } from "../../../../src/collectives/group.js";
import { loopbackOver } from "../../../../src/collectives/loopback/loopback.js";
import {
  constantInit,
  fullyShard,
  functional,
  Linear,
  Module,
  normal,
  type Parameter,
  Scope,
  Sequential,
  type Shape,
  type Tensor,
  tensor,
  type Variable,
  type WideDType,
} from "../../../../src/index.js";
import { castTo } from "../../../../src/ops/cast/cast.js";
import { elementCount } from "../../../../src/tensor/shape.js";
import { covering, product } from "../../../arbitraries/covering.js";
import { useBackends } from "../../harness/ranks/backends.js";

const backends = useBackends(4);
/** Parameters of which some ranks have fewer rows, or none. */
const SHAPES: readonly Shape[] = [[7, 5], [4], [1, 3], [9, 16], []];
const SIZES = SHAPES.map(elementCount);
const TOTAL = SIZES.reduce((sum, size) => sum + size, 0);

/** A module whose result has all elements of its parameters, so that the parameters' gradient is the result's gradient. */
class Leaves extends Module {
  constructor(backend: Backend, dtype: WideDType) {
    super(backend, { dtype });
    for (const [i, shape] of SHAPES.entries()) this.parameter(`p${i}`, shape, constantInit(0));
  }

  forward(): Variable {
    const rows = this.parameters().map((parameter, i) => functional.reshape(parameter, [SIZES[i] as number]));
    return functional.concatenate(rows);
  }
}

const PLANS = {
  none: () => undefined,
  ranked: () => ({ algorithm: "ranked" }) as const,
  ring: () => ({ algorithm: "ring" }) as const,
  reversed: (ranks: number) =>
    ({ algorithm: "ring", order: Array.from({ length: ranks }, (_, i) => ranks - 1 - i) }) as const,
} as const;

const CASES = covering(
  product({
    plan: Object.keys(PLANS) as (keyof typeof PLANS)[],
    reduction: [undefined, "mean", "sum"],
    dtype: ["f32", "bf16", "f16"],
    ranks: [2, 3, 4],
    rowMultiple: [1, 4],
  } as const),
  2,
);

/** The gradient of all parameters on a rank. */
const drawTensor = (backend: Backend, dtype: WideDType, rank: number): Tensor<WideDType> =>
  castTo(tensor(backend, normal({ seed: 3n, offset: BigInt(1000 * rank) }, TOTAL, 1), [TOTAL]), dtype);

describe("gradients are reduced by the options of fullyShard", () => {
  it.each(CASES.map((testCase) => [JSON.stringify(testCase), testCase] as const))(
    "%s",
    async (_, testCase) => {
      const { dtype, ranks, rowMultiple } = testCase;
      const plan = PLANS[testCase.plan](ranks);
      const { reduction = "mean" } = testCase;
      const groups = loopbackOver(backends.slice(0, ranks), 20_000);
      const shardedModules = groups.map((group) => {
        const options = { plan, reduction: testCase.reduction, rowMultiple };
        return fullyShard(new Leaves(group.backend, dtype), group, options);
      });
      for (const { module, group } of shardedModules) {
        using _pass = new Scope();
        (module as Leaves).forward().backward(drawTensor(group.backend, dtype, group.rank));
      }
      const expected = shardedModules.map((parallelParameter) => {
        const scope = new Scope();
        const { module, group } = parallelParameter;
        const fullGrad = drawTensor(group.backend, dtype, group.rank);
        let begin = 0;
        const rows = module.parameters().map((parameter, i) => {
          const shape = SHAPES[i] as Shape;
          const grad = fullGrad.slice(begin, shape);
          begin += elementCount(shape);
          const rowsOfGrad = shape.length === 0 ? grad.reshape([1]) : grad;
          return group.reduceScatter(rowsOfGrad, {
            reduction,
            plan,
            rows: parallelParameter.rowsOf(parameter),
          });
        });
        scope.close();
        return { rows, scope };
      });
      for (const [rank, { module }] of shardedModules.entries())
        for (const [i, { grad }] of module.parameters().entries())
          expect(await grad?.data(), `p${i} on rank ${rank}`).toEqual(await expected[rank]?.rows[i]?.data());
      for (const { scope } of expected) scope.dispose();
      for (const { module } of shardedModules) module.dispose();
    },
  );

  it("of a module while the pass computes those of earlier modules", () => {
    const [group] = loopbackOver(backends.slice(0, 1), 20_000) as [ProcessGroup];
    const layerOptions = { dtype: "f32" } as const;
    const layers = [0, 1, 2].map(() => new Linear(group.backend, 8, 8, layerOptions));
    using model = new Sequential(group.backend, ...layers);
    const events: string[] = [];
    for (const [name, parameter] of model.namedParameters())
      parameter.registerPostAccumulateGradHook(() => void events.push(`ready ${name}`));
    fullyShard(model, group);
    const reduceScatter = group.reduceScatter.bind(group);
    vi.spyOn(group, "reduceScatter").mockImplementation((x, options) => {
      events.push(`reduced ${x.size}`);
      return reduceScatter(x, options);
    });
    using _ = new Scope();
    const x = tensor(group.backend, new Float32Array(64), [8, 8]);
    model.forward(x).backward(x);
    const size = 64 + 8;
    for (const i of [2, 1, 0]) {
      const ownEvents = events.splice(0, 3);
      expect(ownEvents.slice(0, 2).sort()).toEqual([`ready ${i}.bias`, `ready ${i}.weight`]);
      expect(Number(ownEvents[2]?.replace("reduced ", ""))).toBeGreaterThanOrEqual(size);
    }
    expect(events).toEqual([]);
  });

  it("at the end of a pass that reaches some parameters of a module only", async () => {
    const groups = loopbackOver(backends.slice(0, 2), 20_000);
    const modules = groups.map((group) => {
      const module = new Leaves(group.backend, "f32");
      fullyShard(module, group, { reduction: "sum" });
      using _ = new Scope();
      const [, secondParameter] = module.parameters() as [Parameter, Parameter];
      const onesTensor = tensor(group.backend, new Float32Array(4).fill(1 + group.rank), [4]);
      functional.reshape(secondParameter, [4]).backward(onesTensor);
      return module;
    });
    for (const module of modules) {
      const grads = module.parameters().map(({ grad }) => grad);
      expect(grads.map((grad) => grad?.size)).toEqual([undefined, 2, undefined, undefined, undefined]);
      expect(await grads[1]?.data()).toEqual(Float32Array.of(3, 3));
    }
    for (const module of modules) module.dispose();
  });

  it("together for each module, and with the names of its parameters", () => {
    const [group] = loopbackOver(backends.slice(0, 1), 20_000) as [ProcessGroup];
    const module = new Leaves(group.backend, "f32");
    fullyShard(module, group);
    using _ = new Scope();
    const withSubject = vi.spyOn(group, "withSubject");
    module.forward().backward(drawTensor(group.backend, "f32", 0));
    const subjects = withSubject.mock.calls.flatMap(([subject]) =>
      subject.startsWith("gradients") ? [subject] : [],
    );
    const names = SHAPES.map((_, i) => `p${SHAPES.length - 1 - i}`);
    expect(subjects).toEqual([`gradients of ${names.join(", ")}`]);
    module.dispose();
  });
});
