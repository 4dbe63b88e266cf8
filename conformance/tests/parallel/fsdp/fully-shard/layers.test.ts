/**
 * Main gradients and delayed gradients of every layer that has them, if they are reduced over ranks. All ranks have the same
 * samples, so that the mean of their gradients is exact: the gradients of one layer.
 */
import { describe, expect, it } from "vitest";
import type { Backend } from "../../../../../src/backends/backend.js";
import type { ProcessGroup } from "../../../../../src/collectives/group.js";
import { loopbackOver } from "../../../../../src/collectives/loopback/loopback.js";
import { persistent } from "../../../../../src/modules/parameter.js";
import { zeros } from "../../../../../src/ops/create.js";
import { DataParallel } from "../../../../../src/parallel/data/data-parallel.js";
import { fullyShard } from "../../../../../src/parallel/fsdp/fully-shard.js";
import { RandomState } from "../../../../../src/quantizers/random-state.js";
import { Scope } from "../../../../../src/tensor/scope.js";
import type { Tensor } from "../../../../../src/tensor/tensor.js";
import { covering, product } from "../../../../arbitraries/covering.js";
import { createInputs, rowsWhere, step, testedCases } from "../../../harness/modules/calls.js";
import type { BuiltModule } from "../../../harness/modules/row.js";
import { moduleRow } from "../../../harness/modules/table.js";
import { useBackends } from "../../../harness/ranks/backends.js";
import { DETERMINISTIC_RECIPES } from "../../../harness/recipes.js";

const [SIZE, ROWS, MOST] = [128, 24, 4];
const SIZES = { rows: ROWS, from: SIZE, to: SIZE, middle: SIZE };
const MICROBATCHES = 2;
const backends = useBackends(MOST);

/** How gradients are reduced. */
const REDUCED = {
  DataParallel: { ranks: 2, mesh: undefined },
  fullyShard: { ranks: 2, mesh: undefined },
  "fullyShard over a mesh": { ranks: 4, mesh: { replicate: 2, shard: 2 } },
} as const;

/** Layers with the options. A router reads numbers of tokens at once, which ranks of one process cannot. */
const LAYERS = rowsWhere(
  ({ takes, routerWeights }) =>
    takes.some((take) => take === "fuseWgradAccumulation" || take === "delayWgradCompute") && !routerWeights,
).map(([name]) => name);

const CASES = testedCases(
  covering(
    product({
      layer: LAYERS,
      reduced: Object.keys(REDUCED) as (keyof typeof REDUCED)[],
      recipe: Object.keys(DETERMINISTIC_RECIPES),
      fuseWgradAccumulation: [false, true],
      delayWgradCompute: [false, true],
      microbatches: [false, true],
    }),
    2,
  ),
  ({ layer }) => moduleRow(layer),
);

type Case = (typeof CASES)[number];

function layerOn(backend: Backend, { layer, fuseWgradAccumulation, delayWgradCompute }: Case): BuiltModule {
  const random = new RandomState(1n);
  return moduleRow(layer).build(backend, SIZES, { random, fuseWgradAccumulation, delayWgradCompute });
}

/** Sets the main gradients. Call it after the parameters were sharded. */
function setMainGrads({ module }: BuiltModule): void {
  for (const parameter of module.parameters())
    if (parameter.fusesAccumulation)
      parameter.mainGrad = persistent(zeros(module.backend, "f32", parameter.shape));
}

/** Runs the microbatches of a step. The passes before the last one run inside `noSync`. */
function run(builtModule: BuiltModule, layerCase: Case, noSync: (body: () => void) => void): void {
  const recipe = DETERMINISTIC_RECIPES[layerCase.recipe]?.();
  const pass = (index: number): void => {
    using _ = new Scope();
    const inputs = createInputs(builtModule.module.backend, builtModule, { rows: ROWS, seed: 10 + index });
    const call = layerCase.microbatches ? { isFirstMicrobatch: index === 0 } : {};
    step(builtModule, inputs, recipe, { call, seed: 20 + index });
    for (const input of inputs) input.zeroGrad();
    builtModule.module.backwardDw();
  };
  for (let index = 0; index < MICROBATCHES - 1; index++) noSync(() => pass(index));
  pass(MICROBATCHES - 1);
}

const numbersOf = async (x: Tensor | undefined): Promise<readonly number[]> =>
  x ? Array.from((await x.data()) as Float32Array | Uint16Array) : [];

describe("the gradients of a layer", () => {
  it.each(CASES.map((layerCase, i) => [`${i}: ${JSON.stringify(layerCase)}`, layerCase] as const))(
    "%s",
    async (_, layerCase) => {
      const { ranks, mesh } = REDUCED[layerCase.reduced];
      const wholeLayer = layerOn(backends[0] as Backend, layerCase);
      setMainGrads(wholeLayer);
      run(wholeLayer, layerCase, (body) => body());
      const layers = (loopbackOver(backends.slice(0, ranks), 20_000) as ProcessGroup[]).map((group) => {
        const builtModule = layerOn(group.backend, layerCase);
        const { module } = builtModule;
        if (layerCase.reduced === "DataParallel") {
          using parallel = new DataParallel(module, group);
          setMainGrads(builtModule);
          run(builtModule, layerCase, (body) => parallel.noSync(body));
          return builtModule;
        }
        const shardedModule = fullyShard(module, group, { mesh });
        setMainGrads(builtModule);
        run(builtModule, layerCase, (body) => shardedModule.noSync(body));
        return builtModule;
      });
      const shard = layerCase.reduced === "DataParallel" ? 1 : 2;
      for (const [i, parameter] of wholeLayer.module.parameters().entries()) {
        const expected = await numbersOf(parameter.mainGrad ?? parameter.grad);
        for (let copy = 0; copy < ranks; copy += shard) {
          const resultParts = await Promise.all(
            layers.slice(copy, copy + shard).map(({ module }) => {
              const { mainGrad, grad } = module.parameters()[i] as typeof parameter;
              return numbersOf(mainGrad ?? grad);
            }),
          );
          expect(resultParts.flat(), `parameter ${i}, ranks from ${copy}`).toEqual(expected);
        }
      }
      for (const { module } of layers) module.dispose();
      wholeLayer.module.dispose();
    },
  );
});
