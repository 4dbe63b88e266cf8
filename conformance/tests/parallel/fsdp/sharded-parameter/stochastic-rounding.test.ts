/**
 * Weights that are rounded stochastically have the codes of one process, however tensor parallelism and `fullyShard` divide them.
 */
import { describe, expect, it } from "vitest";
import type { Backend } from "../../../../../src/backends/backend.js";
import { loopbackOver } from "../../../../../src/collectives/loopback/loopback.js";
import {
  castMasterWeights,
  fullyShard,
  Linear,
  type LinearOptions,
  MXFP8BlockScaling,
  NVFP4BlockScaling,
  normal,
  type Parameter,
  type QParams,
  type QuantizedTensor,
  quantizedModelInit,
  RandomState,
  type Role,
  Scope,
  tensor,
} from "../../../../../src/index.js";
import type { TensorPart } from "../../../../../src/tensor/part.js";
import { product } from "../../../../arbitraries/covering.js";
import { sampleCases } from "../../../harness/draws.js";
import { useBackends } from "../../../harness/ranks/backends.js";
import { elementsOfPart } from "../../../optimizers/divided-net.js";

const MOST = 6;
const COLUMNS = 64;
const backends = useBackends(MOST);

class StochasticMXFP8 extends MXFP8BlockScaling {
  override qparams(role: Role): QParams {
    return { ...super.qparams(role), stochastic: role === "weight" };
  }
}

class StochasticNVFP4 extends NVFP4BlockScaling {
  override qparams(role: Role): QParams {
    return { ...super.qparams(role), stochastic: role === "weight" };
  }
}

const RECIPES = { mxfp8: () => new StochasticMXFP8(), nvfp4: () => new StochasticNVFP4() } as const;

const ROWS = product({
  recipe: Object.keys(RECIPES) as (keyof typeof RECIPES)[],
  parallelMode: [undefined, "column", "row"],
  dp: [1, 2, 3],
  // with 72 and 160 rows the ranks have unequal parts
  rows: [72, 128, 160],
} as const).filter(({ parallelMode, rows }) => parallelMode !== "column" || rows % 32 === 0);

/** Parts of unequal numbers of rows, and parts of parts. */
const isExample = ({ dp, rows }: (typeof ROWS)[number]): boolean => dp === 2 && rows === 160;
const CASES = [...ROWS.filter(isExample), ...sampleCases(ROWS.filter((row) => !isExample(row)))];

type Case = (typeof ROWS)[number];

function createLayer(backend: Backend, { recipe, rows }: Case, options: LinearOptions = {}): Linear {
  return quantizedModelInit(
    { recipe: RECIPES[recipe]() },
    () => new Linear(backend, COLUMNS, rows, { bias: false, random: new RandomState(3n), ...options }),
  );
}

/** Quantizes this rank's part of a matrix into the weight. */
function castPart({ weight, backend }: Linear, matrix: Float32Array): void {
  using _ = new Scope();
  const part = weight.part ? Float32Array.from(elementsOfPart(matrix, weight.part)) : matrix;
  castMasterWeights([weight], [tensor(backend, part, weight.shape)]);
}

/** The values of the rowwise and of the columnwise codes. The rowwise codes are dropped. */
async function valuesOf({ value }: Parameter): Promise<readonly Float32Array[]> {
  const quantizedWeight = value as QuantizedTensor;
  const copies = [quantizedWeight.dequantize("f32")];
  quantizedWeight.updateUsage({ rowwise: false });
  copies.push(quantizedWeight.dequantize("f32"));
  const values: Float32Array[] = [];
  for (const copy of copies) {
    values.push((await copy.data()) as Float32Array);
    copy.dispose();
  }
  return values;
}

describe("a weight that is rounded stochastically has this rank's part of the codes of the whole", () => {
  it.each(CASES.map((row) => [JSON.stringify(row), row] as const))("%s", async (_, row) => {
    const { parallelMode, dp, rows } = row;
    const tp = parallelMode ? 2 : 1;
    const matrix = normal({ seed: 1n, offset: 0n }, rows * COLUMNS, 1);
    const layers = loopbackOver(backends.slice(0, tp * dp), 20_000).map((group) => {
      const mesh = group.split({ tp, dp });
      const layer = createLayer(group.backend, row, parallelMode && { group: mesh.tp, parallelMode });
      fullyShard(layer, mesh.dp);
      return layer;
    });
    const wholeLayer = createLayer(backends[0] as Backend, row);
    for (const layer of [...layers, wholeLayer]) castPart(layer, matrix);
    const parts: (readonly Float32Array[])[] = [];
    for (const { weight } of layers) parts.push(await valuesOf(weight));
    const copies = await valuesOf(wholeLayer.weight);
    const expected = layers.map(({ weight }) =>
      copies.map((copy) => Float32Array.from(elementsOfPart(copy, weight.part as TensorPart))),
    );
    for (const layer of [...layers, wholeLayer]) layer.dispose();
    expect(parts).toEqual(expected);
  });
});
