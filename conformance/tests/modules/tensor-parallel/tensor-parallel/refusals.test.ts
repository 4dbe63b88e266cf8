/** A divided layer refuses invalid inputs by a typed error with the reason, before ranks exchange anything. */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { autocast } from "../../../../../src/autocast.js";
import type { ProcessGroup } from "../../../../../src/collectives/group.js";
import { loopbackGroup } from "../../../../../src/collectives/loopback/loopback.js";
import { ArgumentError, type LockstepError, ShapeError } from "../../../../../src/errors.js";
import { Embedding } from "../../../../../src/modules/embedding.js";
import { LayerNormMLP } from "../../../../../src/modules/layer-norm-mlp.js";
import { Linear } from "../../../../../src/modules/linear.js";
import { LayerNorm } from "../../../../../src/modules/norm.js";
import { zeros } from "../../../../../src/ops/create.js";
import { Float8CurrentScalingQuantizer } from "../../../../../src/quantizers/float8.js";
import { CustomRecipe } from "../../../../../src/recipes/custom.js";
import { DelayedScaling, Float8CurrentScaling } from "../../../../../src/recipes/per-tensor.js";
import { Scope } from "../../../../../src/tensor/scope.js";

import { rowsWhere } from "../../../harness/modules/calls.js";

const SIZES = { rows: 4, from: 4, to: 4, middle: 4 };
const COLUMN = { parallelMode: "column", dtype: "f32" } as const;

describe("a divided layer refuses", () => {
  let groups: ProcessGroup[] = [];
  beforeAll(async () => {
    groups = await loopbackGroup(2);
  });
  afterAll(async () => {
    for (const group of groups) await group.dispose();
  });

  type Case = readonly [
    what: string,
    call: (group: ProcessGroup, otherGroup: ProcessGroup) => unknown,
    error: typeof ArgumentError | typeof ShapeError,
    words: RegExp,
  ];
  const call = (layer: Linear | LayerNormMLP, shape: readonly number[]): unknown =>
    layer.forward(zeros(layer.backend, "f32", shape));
  const cases: readonly Case[] = [
    [
      "parallelMode without group",
      (foreign) => new Linear(foreign.backend, 4, 4, COLUMN),
      ArgumentError,
      /give group/,
    ],
    [
      "sequenceParallel without group",
      (foreign) => new Linear(foreign.backend, 4, 4, { sequenceParallel: true }),
      ArgumentError,
      /give group/,
    ],
    [
      "sequenceParallel of a norm without group",
      (foreign) => new LayerNorm(foreign.backend, 4, { sequenceParallel: true }),
      ArgumentError,
      /give group/,
    ],
    [
      "group without parallelMode",
      (group) => new Linear(group.backend, 4, 4, { group }),
      ArgumentError,
      /"column" or "row"/,
    ],
    [
      "a group of another backend",
      (foreign, group) => new Linear(foreign.backend, 4, 4, { ...COLUMN, group }),
      ArgumentError,
      /another backend/,
    ],
    [
      "an MLP's group of another backend",
      (foreign, group) => new LayerNormMLP(foreign.backend, 4, 4, { group }),
      ArgumentError,
      /another backend/,
    ],
    [
      "what is no group",
      (foreign) => new Linear(foreign.backend, 4, 4, { ...COLUMN, group: {} as ProcessGroup }),
      ArgumentError,
      /a ProcessGroup/,
    ],
    ...rowsWhere(({ takes }) => takes.includes("normalization") && takes.includes("parallelMode")).map(
      ([name, row]): Case => [
        `a norm before divided rows: ${name}`,
        (group) => row.build(group.backend, SIZES, { group, parallelMode: "row" }).module,
        ArgumentError,
        /columns that the norm needs/,
      ],
    ),
    [
      "outFeatures that do not divide",
      (group) => new Linear(group.backend, 4, 5, { ...COLUMN, group }),
      ShapeError,
      /outFeatures 5/,
    ],
    [
      "pieces that do not divide",
      (group) => new Linear(group.backend, 4, 12, { ...COLUMN, group, pieces: 4 }),
      ShapeError,
      /outFeatures \/ pieces 3/,
    ],
    [
      "pieces of a row-parallel result",
      (group) => new Linear(group.backend, 4, 12, { group, parallelMode: "row", pieces: 2 }),
      ArgumentError,
      /pieces is 2/,
    ],
    [
      "a vocabulary that does not divide",
      (group) => new Embedding(group.backend, 5, 4, { group }),
      ShapeError,
      /vocabulary 5/,
    ],
    [
      "inFeatures that do not divide",
      (group) => new Linear(group.backend, 5, 4, { group, parallelMode: "row" }),
      ShapeError,
      /inFeatures 5/,
    ],
    [
      "ffnHidden that does not divide",
      (group) => new LayerNormMLP(group.backend, 4, 5, { group, activation: "swiglu" }),
      ShapeError,
      /ffnHidden 5/,
    ],
    [
      "rows that do not divide",
      (group) =>
        call(
          new Linear(group.backend, 4, 4, {
            group,
            parallelMode: "row",
            sequenceParallel: true,
            dtype: "f32",
          }),
          [3, 2],
        ),
      ShapeError,
      /^linear: .* first dimension 3/,
    ],
    [
      "no rows to divide",
      (group) => call(new Linear(group.backend, 4, 4, { ...COLUMN, group, sequenceParallel: true }), [4]),
      ShapeError,
      /give \[rows, K\]/,
    ],
    [
      "rows of all ranks that are not aligned, as a whole",
      (group) =>
        autocast({ recipe: new Float8CurrentScaling() }, () =>
          call(new Linear(group.backend, 24, 32, { ...COLUMN, group, sequenceParallel: true }), [16, 24]),
        ),
      ShapeError,
      /the input is \[32,24\]/,
    ],
    [
      "a quantized input, whose scale is that of its own rows",
      (group) =>
        autocast({ recipe: new Float8CurrentScaling() }, () =>
          new Linear(group.backend, 16, 32, { ...COLUMN, group, sequenceParallel: true }).forward(
            new Float8CurrentScalingQuantizer().quantize(zeros(group.backend, "f32", [16, 16])),
          ),
        ),
      ArgumentError,
      /^linear: the input is quantized/,
    ],
    [
      "gathered codes whose scales ranks do not share",
      (group) =>
        autocast({ recipe: new DelayedScaling({ reduceAmax: false }) }, () =>
          call(new Linear(group.backend, 16, 32, { ...COLUMN, group, sequenceParallel: true }), [16, 16]),
        ),
      ArgumentError,
      /reduceAmax/,
    ],
    [
      "a custom quantizer whose amax ranks do not share",
      (group) =>
        autocast(
          { recipe: new CustomRecipe({ quantizerFactory: () => new Float8CurrentScalingQuantizer() }) },
          () =>
            call(new Linear(group.backend, 16, 32, { ...COLUMN, group, sequenceParallel: true }), [16, 16]),
        ),
      ArgumentError,
      /shard/,
    ],
  ];
  it.each(cases)("%s", (_what, call, type, message) => {
    using _ = new Scope();
    const [group, otherGroup] = groups as [ProcessGroup, ProcessGroup];
    let error: LockstepError | undefined;
    try {
      call(group, otherGroup);
    } catch (reason) {
      error = reason as LockstepError;
    }
    expect(error).toBeInstanceOf(type);
    expect(error?.message).toMatch(message);
  });
});
