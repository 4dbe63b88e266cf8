/**
 * The gradients of every module are the derivatives of its result. Products are exact, or fp32 if the module computes attention.
 */
import { describe } from "vitest";
import type { Backend } from "../../../src/backends/backend.js";
import * as functional from "../../../src/functional/index.js";
import { Embedding } from "../../../src/modules/embedding.js";
import { MLP_ACTIVATIONS, type MLPActivation } from "../../../src/modules/layer-norm-mlp.js";
import { Linear } from "../../../src/modules/linear.js";
import type { Module } from "../../../src/modules/module.js";
import { MoELayer } from "../../../src/modules/moe-layer.js";
import type { Normalization } from "../../../src/modules/norm.js";
import { Sequential } from "../../../src/modules/sequential.js";
import { tensor } from "../../../src/ops/create.js";
import { Variable } from "../../../src/tape/variable.js";
import { elementCount } from "../../../src/tensor/shape.js";
import {
  type DrawnCase,
  differentiatesOn,
  KINKED_ACTIVATIONS,
  labels,
  type Make,
} from "../harness/differentiates.js";
import { sampleCases } from "../harness/draws.js";
import { gridLeaf, gridValues } from "../harness/gradients.js";
import { inputsWithGradients, recomputeModule, rowsWhere, testedCases } from "../harness/modules/calls.js";
import type { BuiltModule, ModuleRow, ModuleSettings } from "../harness/modules/row.js";
import { useBackend } from "../harness/suite.js";

const differentiates = differentiatesOn(useBackend({ threads: 1, datapath: "exact" }));
const differentiatesAttention = differentiatesOn(useBackend({ threads: 1, datapath: "fp32" }));
const differentiatesRow = ({ attends }: ModuleRow) => (attends ? differentiatesAttention : differentiates);
const F32 = { dtype: "f32" } as const;
const NORMS: readonly Normalization[] = ["LayerNorm", "RMSNorm"];

/** The parameters of a module, with new random values. */
function parametersOf(module: Module, seed: number): readonly Variable[] {
  return module.parameters().map((parameter, i) => {
    parameter.tensor.write(gridValues(seed + 7 * i + 1, parameter.tensor.size));
    return parameter;
  });
}

const settingsOf = ({ seed, firstFlag, secondFlag }: DrawnCase): ModuleSettings => ({
  ...F32,
  normalization: NORMS[Number(firstFlag)] as Normalization,
  zeroCenteredGamma: secondFlag,
  eps: 2 ** -6,
  bias: seed % 2 === 0,
});

/** The elements of several variables. */
function flattened(all: readonly Variable[]): Variable {
  const [first, ...others] = all as [Variable, ...Variable[]];
  if (others.length === 0) return first;
  return functional.concatenate(
    all.map((x) => functional.reshape(x, [elementCount(x.shape)])),
    0,
  );
}

/** A module of a row as a function of its inputs and parameters. `run` gives results whose elements are all differentiated. */
function ofRow(
  row: ModuleRow,
  { activation }: ModuleSettings = {},
  run = (built: BuiltModule, inputs: readonly Variable[]): readonly Variable[] => built.run(inputs),
): Make {
  return (b, each, using) => {
    const { rows, columns, extra, seed } = each;
    // a norm after the module is nearly a step function if it has very few columns
    const to = row.composed ? extra + 4 : extra;
    const sizes = { rows, from: columns, to, middle: extra };
    const built = row.build(b, sizes, { ...settingsOf(each), ...(activation ? { activation } : {}) });
    using(built.module);
    const inputs = built.inputs(rows).map(({ shape, ids }, i) => {
      if (ids === undefined) return gridLeaf(b, seed + 100 * i, shape);
      return new Variable(labels(b, seed, elementCount(shape), ids).reshape(shape));
    });
    const leaves = [...inputsWithGradients(inputs), ...parametersOf(built.module, seed)];
    const edges = row.edges === true || KINKED_ACTIVATIONS.includes(activation ?? "");
    return { leaves, hasKinks: edges, run: () => flattened(run(built, inputs)) };
  };
}

const ROWS = rowsWhere();
const ACTIVATIONS = Object.keys(MLP_ACTIVATIONS) as MLPActivation[];
/** The first row of each class with an activation is tested with every activation. */
const activationsOf = (row: ModuleRow): readonly (MLPActivation | undefined)[] =>
  row.takes.includes("activation") && ROWS.find(([, { type }]) => type === row.type)?.[1] === row
    ? ACTIVATIONS
    : [undefined];
const CASES = ROWS.flatMap(([name, row]) =>
  activationsOf(row).map((activation) => [name, row, activation] as const),
);

describe("modules", () => {
  for (const [name, row, activation] of testedCases(
    CASES,
    ([, each]) => each,
    () => false,
  ))
    if (activation) differentiatesRow(row)(`${name} of ${activation}`, ofRow(row, { activation }), 6);
    else differentiatesRow(row)(name, ofRow(row));

  for (const [name, row] of sampleCases(ROWS))
    differentiatesRow(row)(
      `${name}, computed again, and its inputs, which are used twice`,
      ofRow(row, {}, (built, inputs) => [recomputeModule(built, inputs), ...inputsWithGradients(inputs)]),
    );

  for (const [name, options] of Object.entries({
    swiglu: {},
    geglu: { activation: "geglu", scoreFunction: "sigmoid" },
    "clamped swiglu": { clamp: { limit: 0.75 }, scoreFunction: "sqrtsoftplus" },
  } as const))
    differentiates(
      `MoELayer of ${name}`,
      ofModule(
        (b, { columns, extra, firstFlag, secondFlag }) =>
          new MoELayer(b, columns, extra, 3, {
            ...F32,
            topk: firstFlag ? 1 : 2,
            bias: secondFlag,
            ...options,
          }),
        forwardOf,
        true,
      ),
      6,
    );
  differentiates("Embedding, as the first of several layers", (b, each, using) => {
    const table = new Embedding(b, each.extra, each.columns, F32);
    const module = new Sequential(b, table, new Linear(b, each.columns, each.rows, F32));
    using(module);
    const ids = tensor(b, Int32Array.of(0, each.extra - 1, 0), [3], "i32");
    return { leaves: parametersOf(module, each.seed), run: () => module.forward(ids) };
  });

  differentiates("Embedding, of ids that repeat", (b, each, using) => {
    const module = new Embedding(b, each.extra, each.columns, F32);
    using(module);
    const ids = labels(b, each.seed, each.rows + 2, each.extra);
    return { leaves: parametersOf(module, each.seed), run: () => module.forward(ids) };
  });
});

/** A module as a function of x and its parameters. */
function ofModule<M extends Module>(
  make: (b: Backend, drawn: DrawnCase) => M,
  forward: (module: M, x: Variable) => Variable,
  edges = false,
): Make {
  return (b, each, using) => {
    const module = make(b, each);
    using(module);
    const x = gridLeaf(b, each.seed, [each.rows, each.columns]);
    const leaves = [x, ...parametersOf(module, each.seed)];
    return { leaves, hasKinks: edges, run: () => forward(module, x) };
  };
}

function forwardOf(module: Module & { forward(x: Variable): Variable }, x: Variable): Variable {
  return module.forward(x);
}

describe("values that are used twice", () => {
  differentiates(
    "a residual connection",
    ofModule(
      (b, { columns }) => new Linear(b, columns, columns, F32),
      (module, x) => {
        const between = functional.add(x, module.forward(x));
        return functional.add(between, functional.activation(between, "silu"));
      },
    ),
  );
  differentiates(
    "one layer twice, and a sum with itself",
    ofModule(
      (b, { columns }) => new Linear(b, columns, columns, F32),
      (module, x) => {
        const y = module.forward(functional.activation(module.forward(x), "gelu"));
        return functional.add(y, y);
      },
    ),
  );
  differentiates("one table looked up twice", (b, each, using) => {
    const module = new Embedding(b, each.extra, each.columns, F32);
    using(module);
    const look = (seed: number): Variable => module.forward(labels(b, seed, each.rows, each.extra));
    const run = (): Variable =>
      functional.add(look(each.seed), functional.activation(look(each.seed + 1), "silu"));
    return { leaves: parametersOf(module, each.seed), run };
  });
});
