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

const testDerivatives = differentiatesOn(useBackend({ threads: 1, datapath: "exact" }));
const testAttentionDerivatives = differentiatesOn(useBackend({ threads: 1, datapath: "fp32" }));
const derivativeTestOf = ({ attends }: ModuleRow) => (attends ? testAttentionDerivatives : testDerivatives);
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
function flatten(variables: readonly Variable[]): Variable {
  const [firstVariable, ...otherVariables] = variables as [Variable, ...Variable[]];
  if (otherVariables.length === 0) return firstVariable;
  return functional.concatenate(
    variables.map((x) => functional.reshape(x, [elementCount(x.shape)])),
    0,
  );
}

/** A module of a row as a function of its inputs and parameters. `run` gives results whose elements are all differentiated. */
function functionOfRow(
  row: ModuleRow,
  { activation }: ModuleSettings = {},
  run = (builtModule: BuiltModule, inputs: readonly Variable[]): readonly Variable[] =>
    builtModule.run(inputs),
): Make {
  return (b, drawnCase, disposeAfter) => {
    const { rows, columns, extra, seed } = drawnCase;
    // a norm after the module is nearly a step function if it has very few columns
    const outFeatures = row.composed ? extra + 4 : extra;
    const sizes = { rows, from: columns, to: outFeatures, middle: extra };
    const builtModule = row.build(b, sizes, {
      ...settingsOf(drawnCase),
      ...(activation ? { activation } : {}),
    });
    disposeAfter(builtModule.module);
    const inputs = builtModule.inputs(rows).map(({ shape, ids }, i) => {
      if (ids === undefined) return gridLeaf(b, seed + 100 * i, shape);
      return new Variable(labels(b, seed, elementCount(shape), ids).reshape(shape));
    });
    const leaves = [...inputsWithGradients(inputs), ...parametersOf(builtModule.module, seed)];
    const edges = row.edges === true || KINKED_ACTIVATIONS.includes(activation ?? "");
    return { leaves, hasKinks: edges, run: () => flatten(run(builtModule, inputs)) };
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
    ([, drawnCase]) => drawnCase,
    () => false,
  ))
    if (activation) derivativeTestOf(row)(`${name} of ${activation}`, functionOfRow(row, { activation }), 6);
    else derivativeTestOf(row)(name, functionOfRow(row));

  for (const [name, row] of sampleCases(ROWS))
    derivativeTestOf(row)(
      `${name}, computed again, and its inputs, which are used twice`,
      functionOfRow(row, {}, (builtModule, inputs) => [
        recomputeModule(builtModule, inputs),
        ...inputsWithGradients(inputs),
      ]),
    );

  for (const [name, options] of Object.entries({
    swiglu: {},
    geglu: { activation: "geglu", scoreFunction: "sigmoid" },
    "clamped swiglu": { clamp: { limit: 0.75 }, scoreFunction: "sqrtsoftplus" },
  } as const))
    testDerivatives(
      `MoELayer of ${name}`,
      functionOfModule(
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
  testDerivatives("Embedding, as the first of several layers", (b, drawnCase, disposeAfter) => {
    const table = new Embedding(b, drawnCase.extra, drawnCase.columns, F32);
    const module = new Sequential(b, table, new Linear(b, drawnCase.columns, drawnCase.rows, F32));
    disposeAfter(module);
    const ids = tensor(b, Int32Array.of(0, drawnCase.extra - 1, 0), [3], "i32");
    return { leaves: parametersOf(module, drawnCase.seed), run: () => module.forward(ids) };
  });

  testDerivatives("Embedding, of ids that repeat", (b, drawnCase, disposeAfter) => {
    const module = new Embedding(b, drawnCase.extra, drawnCase.columns, F32);
    disposeAfter(module);
    const ids = labels(b, drawnCase.seed, drawnCase.rows + 2, drawnCase.extra);
    return { leaves: parametersOf(module, drawnCase.seed), run: () => module.forward(ids) };
  });
});

/** A module as a function of x and its parameters. */
function functionOfModule<M extends Module>(
  make: (b: Backend, sizes: DrawnCase) => M,
  forward: (module: M, x: Variable) => Variable,
  edges = false,
): Make {
  return (b, drawnCase, disposeAfter) => {
    const module = make(b, drawnCase);
    disposeAfter(module);
    const x = gridLeaf(b, drawnCase.seed, [drawnCase.rows, drawnCase.columns]);
    const leaves = [x, ...parametersOf(module, drawnCase.seed)];
    return { leaves, hasKinks: edges, run: () => forward(module, x) };
  };
}

function forwardOf(module: Module & { forward(x: Variable): Variable }, x: Variable): Variable {
  return module.forward(x);
}

describe("values that are used twice", () => {
  testDerivatives(
    "a residual connection",
    functionOfModule(
      (b, { columns }) => new Linear(b, columns, columns, F32),
      (module, x) => {
        const between = functional.add(x, module.forward(x));
        return functional.add(between, functional.activation(between, "silu"));
      },
    ),
  );
  testDerivatives(
    "one layer twice, and a sum with itself",
    functionOfModule(
      (b, { columns }) => new Linear(b, columns, columns, F32),
      (module, x) => {
        const y = module.forward(functional.activation(module.forward(x), "gelu"));
        return functional.add(y, y);
      },
    ),
  );
  testDerivatives("one table looked up twice", (b, drawnCase, disposeAfter) => {
    const module = new Embedding(b, drawnCase.extra, drawnCase.columns, F32);
    disposeAfter(module);
    const lookUp = (seed: number): Variable =>
      module.forward(labels(b, seed, drawnCase.rows, drawnCase.extra));
    const run = (): Variable =>
      functional.add(lookUp(drawnCase.seed), functional.activation(lookUp(drawnCase.seed + 1), "silu"));
    return { leaves: parametersOf(module, drawnCase.seed), run };
  });
});
