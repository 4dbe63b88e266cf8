/** The further results of divided layers: the bias, and the rows of the norm's result on this rank or on all ranks. */
import { describe, expect, it } from "vitest";
import { autocast } from "../../../src/autocast.js";
import type { ProcessGroup } from "../../../src/collectives/group.js";
import { loopbackOver } from "../../../src/collectives/loopback/loopback.js";
import { ArgumentError } from "../../../src/errors.js";
import * as functional from "../../../src/functional/index.js";
import { LayerNormLinear } from "../../../src/modules/layer-norm-linear.js";
import { LayerNormMLP } from "../../../src/modules/layer-norm-mlp.js";
import type { LinearOptions } from "../../../src/modules/linear/parts.js";
import { Linear } from "../../../src/modules/linear.js";
import type { NormedCall } from "../../../src/modules/normed-call.js";
import { tensor } from "../../../src/ops/create.js";
import { RandomState } from "../../../src/quantizers/random-state.js";
import { Variable } from "../../../src/tape/variable.js";
import { Scope } from "../../../src/tensor/scope.js";
import type { Tensor } from "../../../src/tensor/tensor.js";
import { words } from "../../arbitraries/random.js";
import type { PlainTensor } from "../../values/plain.js";
import { upload, wideValues } from "../../values/plain.js";
import { rounded } from "../../values/rounded.js";
import { sampleCases } from "../harness/draws.js";
import { useBackends } from "../harness/ranks/backends.js";
import { DETERMINISTIC_RECIPES, drawnValues } from "../harness/recipes.js";

const RANKS = 2;
const [SIZE, ROWS] = [64, 64];
const backends = useBackends(RANKS);

/** Integers from -4 to 4, whose sums are exact in bf16. */
const integerTensor = (seed: number, shape: readonly number[]): PlainTensor<"bf16"> =>
  rounded(
    "bf16",
    shape,
    Array.from(
      words(
        seed,
        shape.reduce((a, b) => a * b, 1),
      ),
      (bits) => (bits % 9) - 4,
    ),
  );

const bits = async (x: Tensor): Promise<readonly number[]> => [...((await x.data()) as Uint16Array)];

/** Runs `body` on all ranks, in a scope of each, and reads the tensors that it returns. */
async function onRanks(
  body: (
    group: ProcessGroup,
    disposable: <M extends { dispose(): void }>(value: M) => M,
  ) => readonly Tensor[],
): Promise<readonly (readonly (readonly number[])[])[]> {
  return Promise.all(
    loopbackOver(backends).map(async (group) => {
      const disposables: { dispose(): void }[] = [];
      const disposable = <M extends { dispose(): void }>(value: M): M => {
        disposables.push(value);
        return value;
      };
      let tensors: readonly Tensor[];
      {
        using scope = new Scope();
        tensors = body(group, disposable).map((tensor) => scope.keep(tensor));
      }
      const results: (readonly number[])[] = [];
      for (const tensor of tensors) {
        results.push(await bits(tensor));
        tensor.dispose();
      }
      for (const tensor of disposables) tensor.dispose();
      return results;
    }),
  );
}

/** Rows of rank `rank`. */
const rowsOf = (x: PlainTensor<"bf16">, rank: number): PlainTensor<"bf16"> => {
  const [rows = 0, columns = 0] = x.shape;
  const count = rows / RANKS;
  const values = [...wideValues(x)].slice(rank * count * columns, (rank + 1) * count * columns);
  return rounded("bf16", [count, columns], values);
};

const gradOf = (x: Variable): Tensor => {
  const grad = x.grad as Tensor;
  x.grad = undefined;
  return grad;
};

describe("the gradient of a returned bias is the sum over the rows of all ranks", () => {
  const FORMS = {
    "Linear, parallel by rows": {
      make: (group: ProcessGroup, options: LinearOptions) =>
        new Linear(group.backend, SIZE, SIZE, {
          ...options,
          ...{ group, parallelMode: "row", sequenceParallel: true },
        }),
      width: SIZE / RANKS,
      rowsOfRank: ROWS,
    },
    LayerNormMLP: {
      make: (group: ProcessGroup, options: LinearOptions) =>
        new LayerNormMLP(group.backend, SIZE, SIZE, { ...options, group, sequenceParallel: true }),
      width: SIZE,
      rowsOfRank: ROWS / RANKS,
    },
  } as const;

  for (const [i, [name, { make, width, rowsOfRank }]] of Object.entries(FORMS).entries())
    it.each(sampleCases(["bf16", "current", "mxfp8"], 1, i))(`${name}, under %s`, async (recipeName) => {
      const recipe = DETERMINISTIC_RECIPES[recipeName]?.();
      const region = <T>(body: () => T): T => (recipe ? autocast({ recipe }, body) : body());
      const dy = integerTensor(3, [ROWS, SIZE]);
      const input = (group: ProcessGroup) =>
        new Variable(upload(group.backend, drawnValues(10 + group.rank, [rowsOfRank, width])), true);
      const resultsWithBias = await onRanks((group, returningResults) => {
        const layer = returningResults(make(group, { random: new RandomState(4n) }));
        const x = input(group);
        const [out, bias] = region(() => layer.forwardWithBias(x)) as [Variable, Variable];
        functional.add(out, bias).backward(upload(group.backend, rowsOf(dy, group.rank)));
        const parameter = "bias" in layer ? layer.bias : layer.fc2Bias;
        return [out.tensor, gradOf(x), gradOf(parameter as Variable)];
      });
      const plainResults = await onRanks((group, disposable) => {
        const layer = disposable(make(group, { random: new RandomState(4n), bias: true }));
        const x = input(group);
        const out = region(() => layer.forward(x));
        out.backward(upload(group.backend, rowsOf(dy, group.rank)));
        const parameter = "bias" in layer ? layer.bias : layer.fc2Bias;
        return [out.tensor, gradOf(x), gradOf(parameter as Variable)];
      });
      const sums = Array.from({ length: SIZE }, (_, column) =>
        wideValues(dy).reduce((sum, value, i) => (i % SIZE === column ? sum + value : sum), 0),
      );
      const expected = [...(rounded("bf16", [SIZE], sums).data as Uint16Array)];
      for (const [rank, [, dx, dbias]] of resultsWithBias.entries()) {
        expect(dbias).toEqual(expected);
        expect(dx).toEqual(plainResults[rank]?.[1]);
        expect(dbias).toEqual(plainResults[rank]?.[2]);
      }
    });
});

describe("the norm's result has the rows of all ranks, and its gradient is summed over them", () => {
  type Layer = LayerNormLinear | LayerNormMLP;
  const FORMS: Readonly<Record<string, (group: ProcessGroup, sequenceParallel: boolean) => Layer>> = {
    LayerNormLinear: (group, sequenceParallel) =>
      new LayerNormLinear(group.backend, SIZE, SIZE, {
        ...{ group, sequenceParallel, parallelMode: "column", random: new RandomState(4n) },
      }),
    LayerNormMLP: (group, sequenceParallel) =>
      new LayerNormMLP(group.backend, SIZE, SIZE, { group, sequenceParallel, random: new RandomState(4n) }),
  };
  const METHODS = {
    forwardWithNorm: (layer: Layer, x: Variable, call: NormedCall) => layer.forwardWithNorm(x, call),
    forwardWithBiasAndNorm: (layer: Layer, x: Variable, call: NormedCall) => {
      const [out, , normResult] = layer.forwardWithBiasAndNorm(x, call);
      return [out, normResult] as const;
    },
  };

  for (const [i, [name, make]] of Object.entries(FORMS).entries())
    for (const [method, forward] of sampleCases(Object.entries(METHODS), 1, i))
      it.each(sampleCases(["bf16", "mxfp8"], 1, i))(`${name}.${method}, under %s`, async (recipeName) => {
        const recipe = DETERMINISTIC_RECIPES[recipeName]?.();
        const region = <T>(body: () => T): T => (recipe ? autocast({ recipe }, body) : body());
        const x = drawnValues(1, [ROWS, SIZE]);
        // the operations of each rank on all rows
        const grads = [0, 1].map((rank) => integerTensor(20 + rank, [ROWS, SIZE]));
        const [firstGrads = [], secondGrads = []] = grads.map((grad) => [...wideValues(grad)]);
        const sum = rounded(
          "bf16",
          [ROWS, SIZE],
          firstGrads.map((value, i) => value + (secondGrads[i] as number)),
        );
        const run = (isGathered: boolean) =>
          onRanks((group, disposable) => {
            const layer = disposable(make(group, true));
            const input = new Variable(upload(group.backend, rowsOf(x, group.rank)), true);
            const [out, normResult] = region(() =>
              forward(layer, input, { returnLayernormOutputGathered: isGathered }),
            );
            const dy = isGathered ? (grads[group.rank] as PlainTensor<"bf16">) : rowsOf(sum, group.rank);
            normResult.backward(upload(group.backend, dy));
            return [out.tensor, normResult.tensor, gradOf(input), gradOf(layer.layerNormWeight)];
          });
        const [allRows, local] = [await run(true), await run(false)];
        for (const [rank, [out, normResult, dx, dgamma]] of allRows.entries()) {
          expect(out).toEqual(local[rank]?.[0]);
          expect(normResult).toEqual(local.flatMap(([, values]) => values));
          expect(dx).toEqual(local[rank]?.[2]);
          expect(dgamma).toEqual(local[rank]?.[3]);
        }
      });

  it("has no effect where every rank has all rows", async () => {
    const shapes: (readonly number[])[] = [];
    await onRanks((group, disposable) => {
      const layer = disposable(FORMS.LayerNormLinear?.(group, false) as LayerNormLinear);
      const x = upload(group.backend, drawnValues(1, [ROWS, SIZE]));
      const [, normResult] = layer.forwardWithNorm(x, { returnLayernormOutputGathered: true });
      shapes.push(normResult.shape);
      return [];
    });
    expect(shapes).toEqual([
      [ROWS, SIZE],
      [ROWS, SIZE],
    ]);
  });
});

it("options of other calls are refused", async () => {
  await onRanks((group, disposable) => {
    const layer = disposable(new LayerNormLinear(group.backend, SIZE, SIZE));
    const x = tensor(group.backend, new Uint16Array(SIZE), [1, SIZE], "bf16");
    const call: object = { returnLayernormOutputGathered: true };
    expect(() => layer.forward(x, call)).toThrow(ArgumentError);
    expect(() => layer.forwardWithBias(x, call)).toThrow(ArgumentError);
    return [];
  });
});
