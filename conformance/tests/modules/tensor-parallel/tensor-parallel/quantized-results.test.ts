/** `fp8Output` and `fp8Grad` of divided layers: codes and gradients equal the ones of one rank, or of the wide result. */
import { describe, expect, it } from "vitest";
import { autocast } from "../../../../../src/autocast.js";
import type { Backend } from "../../../../../src/backends/backend.js";
import type { ProcessGroup } from "../../../../../src/collectives/group.js";
import { loopbackOver } from "../../../../../src/collectives/loopback/loopback.js";
import { DTypeError } from "../../../../../src/errors.js";
import type { LinearOptions } from "../../../../../src/modules/linear/parts.js";
import { Linear } from "../../../../../src/modules/linear.js";
import { zeros } from "../../../../../src/ops/create.js";
import { dequantize } from "../../../../../src/ops/quantize/dequantize.js";
import { RandomState } from "../../../../../src/quantizers/random-state.js";
import { quantizerFor } from "../../../../../src/recipes/quantizer-for.js";
import type { Recipe } from "../../../../../src/recipes/recipe.js";
import { Variable } from "../../../../../src/tape/variable.js";
import { QuantizedTensor } from "../../../../../src/tensor/quantized.js";
import { Scope } from "../../../../../src/tensor/scope.js";
import type { Tensor } from "../../../../../src/tensor/tensor.js";
import { covering, product } from "../../../../arbitraries/covering.js";
import { type PlainTensor, upload } from "../../../../values/plain.js";
import { sampleCases } from "../../../harness/draws.js";
import { useBackends } from "../../../harness/ranks/backends.js";
import { DETERMINISTIC_RECIPES, drawnValues } from "../../../harness/recipes.js";

const RANKS = 2;
const [SIZE, MIDDLE, ROWS] = [128, 256, 32];
const backends = useBackends(RANKS + 1);
const { bf16: _, ...QUANTIZED } = DETERMINISTIC_RECIPES;
/** Recipes with one scale for a tensor, from whose codes a columnwise copy can be derived. */
const PER_TENSOR = ["delayed", "current"];

type Bits = readonly number[];
/** A matrix of codes or numbers, by rows. */
interface Observation {
  readonly bits: Bits;
  readonly columns: number;
}

/** Runs `body` in a scope of each rank, and reads the tensors that it returns. */
async function readAll(tensors: readonly Tensor[]): Promise<readonly Observation[]> {
  const observations: Observation[] = [];
  for (const tensor of tensors) {
    observations.push({
      bits: Array.from((await tensor.data()) as Uint16Array),
      columns: tensor.shape.at(-1) ?? 1,
    });
    tensor.dispose();
  }
  return observations;
}

type Register = <M extends { dispose(): void }>(disposable: M) => M;
type Body = (b: Backend, group: ProcessGroup | undefined, register: Register) => readonly Tensor[];

async function run(b: Backend, group: ProcessGroup | undefined, body: Body): Promise<readonly Observation[]> {
  const disposables: { dispose(): void }[] = [];
  const register: Register = (disposable) => {
    disposables.push(disposable);
    return disposable;
  };
  let tensors: readonly Tensor[];
  {
    using scope = new Scope();
    tensors = body(b, group, register).map((tensor) => scope.keep(tensor));
  }
  const observations = await readAll(tensors);
  for (const disposable of disposables) disposable.dispose();
  return observations;
}

const onRanks = (body: Body) =>
  Promise.all(loopbackOver(backends.slice(0, RANKS)).map((group) => run(group.backend, group, body)));
const onOne = (body: Body) => run(backends[RANKS] as Backend, undefined, body);

/** Columns of rank `rank`, or rows if `dimension` is "rows". */
function part({ bits, columns }: Observation, rank: number, dimension: "rows" | "columns"): Bits {
  if (dimension === "rows")
    return bits.slice((rank * bits.length) / RANKS, ((rank + 1) * bits.length) / RANKS);
  const width = columns / RANKS;
  return bits.filter((_bit, i) => Math.floor((i % columns) / width) === rank);
}

const partOf = (x: PlainTensor<"bf16">, rank: number): PlainTensor<"bf16"> => {
  const [rows = 0, columns = 0] = x.shape;
  const input = { bits: Array.from(x.data as Uint16Array), columns };
  const data = Uint16Array.from(part(input, rank, "columns"));
  return Object.assign(Object.create(Object.getPrototypeOf(x)), {
    ...x,
    shape: [rows, columns / RANKS],
    data,
  });
};

const takeGrad = (x: Variable): Tensor => {
  const grad = x.grad as Tensor;
  x.grad = undefined;
  return grad;
};
const valuesOf = ({ value }: Variable): Tensor => {
  expect(value).toBeInstanceOf(QuantizedTensor);
  return dequantize(value as QuantizedTensor);
};
const regionOf = (name: string) => {
  const recipe = DETERMINISTIC_RECIPES[name]?.() as Recipe;
  return { recipe, region: <T>(body: () => T): T => autocast({ recipe }, body) };
};
const layerOf = (b: Backend, sizes: readonly [number, number], seed: bigint, options: LinearOptions) =>
  new Linear(b, ...sizes, { random: new RandomState(seed), ...options });

describe("codes of a layer that is divided by columns are those of one rank", () => {
  for (const sequenceParallel of [false, true])
    it.each(sampleCases(Object.keys(QUANTIZED), 2, Number(sequenceParallel)))(
      `under %s, sequenceParallel ${sequenceParallel}`,
      async (name) => {
        const body: Body = (b, group, register) => {
          const { region } = regionOf(name);
          const options: LinearOptions = group ? { group, parallelMode: "column", sequenceParallel } : {};
          const layer = register(layerOf(b, [SIZE, MIDDLE], 1n, options));
          const rows = drawnValues(1, [ROWS, SIZE]);
          const input = upload(b, rows);
          const isPart = group && sequenceParallel;
          const count = ROWS / RANKS;
          const x = isPart ? input.slice(group.rank * count * SIZE, [count, SIZE]) : input;
          // the second step has other scales under delayed scaling
          const results = [0, 1].map(() => region(() => layer.forward(x, { fp8Output: true })));
          return results.map(valuesOf);
        };
        const [ranks, oneRank] = [await onRanks(body), await onOne(body)];
        for (const [rank, observations] of ranks.entries())
          for (const [step, { bits }] of observations.entries())
            expect(bits).toEqual(part(oneRank[step] as Observation, rank, "columns"));
      },
    );
});

describe("codes of a layer that is divided by rows are those of its wide result", () => {
  for (const sequenceParallel of [false, true])
    it.each(
      sampleCases(
        Object.keys(QUANTIZED).filter((name) => name !== "delayed"),
        2,
        Number(sequenceParallel),
      ),
    )(`under %s, sequenceParallel ${sequenceParallel}`, async (name) => {
      const x = drawnValues(1, [ROWS, MIDDLE]);
      const result =
        (fp8Output: boolean) => (b: Backend, group: ProcessGroup | undefined, register: Register) => {
          const { region } = regionOf(name);
          const options = { group: group as ProcessGroup, parallelMode: "row", sequenceParallel } as const;
          const layer = register(layerOf(b, [MIDDLE, SIZE], 1n, options));
          const input = upload(b, partOf(x, options.group.rank));
          const y = region(() => layer.forward(input, { fp8Output }));
          return [fp8Output ? valuesOf(y) : y.tensor];
        };
      const [codes, wide] = [await onRanks(result(true)), await onRanks(result(false))];
      const fullBits = sequenceParallel ? wide.flatMap(([member]) => member?.bits ?? []) : wide[0]?.[0]?.bits;
      const [expected] = await onOne((b) => {
        const { recipe } = regionOf(name);
        const quantizer = quantizerFor(recipe, "output", {
          ...{ scale: undefined, random: new RandomState(0n), shard: undefined },
        });
        const y = upload(b, drawnValues(1, [ROWS, SIZE]));
        y.write(Uint16Array.from(fullBits as Bits) as never);
        return [dequantize(quantizer.setUsage({ rowwise: true, columnwise: false }).quantize(y))];
      });
      for (const [rank, [observation]] of codes.entries())
        expect(observation?.bits).toEqual(
          sequenceParallel ? part(expected as Observation, rank, "rows") : (expected as Observation).bits,
        );
    });
});

const PAIRS = covering(
  product({
    recipe: Object.keys(QUANTIZED),
    trains: [true, false],
    fp8Output: [true, false],
    fp8Grad: [true, false],
  }).filter(({ recipe, trains }) => !trains || PER_TENSOR.includes(recipe)),
  2,
);

describe("a layer divided by columns, then one divided by rows, pass codes as on one rank", () => {
  it.each(sampleCases(PAIRS.map((row, i) => [`${i}: ${JSON.stringify(row)}`, row] as const)))(
    "%s",
    async (_name, row) => {
      const body: Body = (b, group, register) => {
        const { region } = regionOf(row.recipe);
        const firstLayer = register(
          layerOf(b, [SIZE, MIDDLE], 1n, group ? { group, parallelMode: "column" } : {}),
        );
        const secondLayer = register(
          layerOf(b, [MIDDLE, SIZE], 2n, group ? { group, parallelMode: "row" } : {}),
        );
        for (const layer of [firstLayer, secondLayer]) layer.weight.requiresGrad = row.trains;
        const steps: Tensor[] = [];
        for (let step = 0; step < 2; step++) {
          const x = new Variable(upload(b, drawnValues(10 + step, [ROWS, SIZE])), true);
          const y = region(() => {
            const hidden = firstLayer.forward(x, { fp8Output: row.fp8Output });
            return secondLayer.forward(hidden, { fp8Grad: row.fp8Grad });
          });
          y.backward(upload(b, drawnValues(20 + step, [ROWS, SIZE])));
          x.zeroGrad();
          secondLayer.bias?.zeroGrad();
          steps.push(takeGrad(firstLayer.bias as Variable));
          if (row.trains) steps.push(takeGrad(firstLayer.weight), takeGrad(secondLayer.weight));
        }
        return steps;
      };
      const [ranks, oneRank] = [await onRanks(body), await onOne(body)];
      const dimensions = row.trains ? (["rows", "rows", "columns"] as const) : (["rows"] as const);
      for (const [rank, observations] of ranks.entries())
        for (const [i, { bits }] of observations.entries())
          expect(bits).toEqual(
            part(oneRank[i] as Observation, rank, dimensions[i % dimensions.length] as "rows"),
          );
    },
  );
});

it("a layer that gathers the rows of its gradient takes it in high precision only", async () => {
  const observations = await onRanks((b, group, register) => {
    const { region } = regionOf("current");
    const division = { group: group as ProcessGroup, sequenceParallel: true };
    const firstLayer = register(layerOf(b, [MIDDLE, SIZE], 1n, { ...division, parallelMode: "row" }));
    const secondLayer = register(layerOf(b, [SIZE, MIDDLE], 2n, { ...division, parallelMode: "column" }));
    const x = upload(b, partOf(drawnValues(1, [ROWS, MIDDLE]), division.group.rank));
    const y = region(() => secondLayer.forward(firstLayer.forward(x), { fp8Grad: true }));
    expect(() => y.backward(zeros(b, "bf16", y.shape))).toThrow(DTypeError);
    return [y.tensor];
  });
  expect(observations.length).toBe(RANKS);
});
