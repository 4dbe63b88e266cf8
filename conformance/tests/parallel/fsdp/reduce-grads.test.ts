/** `fullyShard` reduces gradients by its options: the rows of a rank are those of `reduceScatter` with the same options. */
import { describe, expect, it } from "vitest";
import type { Backend } from "../../../../src/backends/backend.js";
import { loopbackOver } from "../../../../src/collectives/loopback/loopback.js";
import {
  constantInit,
  fullyShard,
  functional,
  Module,
  normal,
  Scope,
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
/** Parameters whose rows some ranks have fewer of, or none. */
const SHAPES: readonly Shape[] = [[7, 5], [4], [1, 3], [9, 16]];
const SIZES = SHAPES.map(elementCount);
const TOTAL = SIZES.reduce((sum, size) => sum + size, 0);

/** A module whose result has all of its parameters' elements, so that its gradient is theirs. */
class Leaves extends Module {
  constructor(backend: Backend, dtype: WideDType) {
    super(backend, { dtype });
    for (const [i, shape] of SHAPES.entries()) this.parameter(`p${i}`, shape, constantInit(0));
  }

  forward(): Variable {
    const rows = this.parameters().map((each, i) => functional.reshape(each, [SIZES[i] as number]));
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
const drawn = (backend: Backend, dtype: WideDType, rank: number): Tensor<WideDType> =>
  castTo(tensor(backend, normal({ seed: 3n, offset: BigInt(1000 * rank) }, TOTAL, 1), [TOTAL]), dtype);

describe("gradients are reduced by the options of fullyShard", () => {
  it.each(CASES.map((each) => [JSON.stringify(each), each] as const))("%s", async (_, given) => {
    const { dtype, ranks, rowMultiple } = given;
    const plan = PLANS[given.plan](ranks);
    const { reduction = "mean" } = given;
    const groups = loopbackOver(backends.slice(0, ranks), 20_000);
    const sharded = groups.map((group) => {
      const options = { plan, reduction: given.reduction, rowMultiple };
      return fullyShard(new Leaves(group.backend, dtype), group, options);
    });
    for (const { module, group } of sharded) {
      using _pass = new Scope();
      (module as Leaves).forward().backward(drawn(group.backend, dtype, group.rank));
    }
    const expected = sharded.map((each) => {
      const scope = new Scope();
      const { module, group } = each;
      const full = drawn(group.backend, dtype, group.rank);
      let first = 0;
      const rows = module.parameters().map((parameter, i) => {
        const shape = SHAPES[i] as Shape;
        const grad = full.slice(first, shape);
        first += elementCount(shape);
        return group.reduceScatter(grad, { reduction, plan, rows: each.rowsOf(parameter) });
      });
      scope.close();
      return { rows, scope };
    });
    for (const [rank, { module }] of sharded.entries())
      for (const [i, { grad }] of module.parameters().entries())
        expect(await grad?.data(), `p${i} on rank ${rank}`).toEqual(await expected[rank]?.rows[i]?.data());
    for (const { scope } of expected) scope.dispose();
    for (const { module } of sharded) module.dispose();
  });
});
