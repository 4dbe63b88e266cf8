/**
 * A layer that returns its bias is bitwise equal to a layer without a bias. The operations that the caller applies to the bias
 * give its gradient.
 */
import { describe, expect, it } from "vitest";
import { autocast } from "../../../../src/autocast.js";
import * as functional from "../../../../src/functional/index.js";
import { Linear } from "../../../../src/modules/linear.js";
import type { Parameter } from "../../../../src/modules/parameter.js";
import { recompute } from "../../../../src/modules/recompute.js";
import { RandomState } from "../../../../src/quantizers/random-state.js";
import { noGrad } from "../../../../src/tape/grad-mode.js";
import { Variable } from "../../../../src/tape/variable.js";
import { Scope } from "../../../../src/tensor/scope.js";
import type { Tensor } from "../../../../src/tensor/tensor.js";
import { covering, product } from "../../../arbitraries/covering.js";
import { download, upload } from "../../../values/plain.js";
import {
  combineResults,
  createInputs,
  inputsWithGradients,
  randomGradient,
  regionOptions,
  rowsWhere,
} from "../../harness/modules/calls.js";
import type { BuiltModule, WithBias } from "../../harness/modules/row.js";
import { moduleRow } from "../../harness/modules/table.js";
import { DETERMINISTIC_RECIPES, drawnValues } from "../../harness/recipes.js";
import { testInScope, useBackend } from "../../harness/suite.js";

const backend = useBackend({ threads: 1, datapath: "hopper" });
const [SIZE, ROWS] = [128, 32];
const SIZES = { rows: ROWS, from: SIZE, to: SIZE, middle: SIZE };

const CASES = covering(
  product({
    layer: rowsWhere(({ hasBiasMethod }) => hasBiasMethod).map(([name]) => name),
    recipe: Object.keys(DETERMINISTIC_RECIPES),
    dtype: ["bf16", "f32"] as const,
    recomputes: [false, true],
    bias: [true, false],
  }).filter(({ recipe, dtype }) => recipe !== "bf16" || dtype === "bf16"),
  2,
);

/** The parameters that a layer returns; empty for a layer without biases. */
function returnedBiases(layer: string, { module }: BuiltModule): readonly Parameter[] {
  const parameters = module.namedParameters();
  return (moduleRow(layer).lastBiases ?? []).flatMap((name) => parameters.get(name) ?? []);
}

/** Sets parameters to drawn values. Initially biases are 0, and a layer without biases would have the same result. */
function draw(parameters: readonly Parameter[]): void {
  for (const [i, parameter] of parameters.entries()) {
    using source = upload(backend(), drawnValues(5 + i, [SIZE]));
    (parameter.value as Tensor).paste(functional.cast(source, parameter.dtype).tensor, 0);
  }
}

const bitsOf = (x: Tensor | undefined): unknown => x && download(x);

/** The sum of a result, biases, and a norm if there is one. */
const sumOf = ({ out, biases, norm }: WithBias): Variable =>
  combineResults([
    biases.reduce<Variable>((sum, bias) => functional.add(sum, bias), out),
    ...(norm ? [norm] : []),
  ]);

describe("the result and its gradients are those of a bias of 0, and the bias is returned", () => {
  it.each(CASES.map((row, i) => [`${i}: ${JSON.stringify(row)}`, row] as const))("%s", (_, row) => {
    using _scope = new Scope();
    const region = regionOptions(DETERMINISTIC_RECIPES[row.recipe]?.());
    const make = (): BuiltModule =>
      moduleRow(row.layer).build(backend(), SIZES, {
        ...{ dtype: row.dtype, bias: row.bias, random: new RandomState(3n) },
      });
    using returningModule = make();
    using plainModule = make();
    const biases = returnedBiases(row.layer, returningModule);
    expect(biases.length > 0).toBe(row.bias);
    draw(biases);
    const inputs = [returningModule, plainModule].map((builtModule) =>
      createInputs(backend(), builtModule, SIZES),
    );
    let returnValue: unknown;
    const body = (...leaves: readonly Variable[]): Variable => {
      const result = returningModule.withBias?.(leaves) as WithBias;
      returnValue = result.biases.map((bias) => bitsOf(bias.tensor));
      return sumOf(result);
    };
    const [x = [], otherInputs = []] = inputs;
    const y = autocast(region, () => (row.recomputes ? recompute(body, ...x) : body(...x)));
    // the same sum of the results without biases, and of leaves
    const leaves = biases.map((bias) => new Variable(functional.cast(bias, "bf16").tensor.clone(), true));
    const expected = autocast(region, () => {
      const [out, norm] = plainModule.run(otherInputs) as [Variable, Variable?];
      return sumOf({ out, biases: leaves, norm });
    });
    expect(download(y.tensor)).toEqual(download(expected.tensor));
    expect(returnValue).toEqual(leaves.map((leaf) => bitsOf(leaf.tensor)));
    const dy = randomGradient(y);
    y.backward(dy);
    expected.backward(dy);
    expect(biases.map(({ grad }) => bitsOf(grad))).toEqual(
      leaves.map(({ grad }) => bitsOf(functional.cast(grad as Tensor, row.dtype).tensor)),
    );
    expect(x.map(({ grad }) => bitsOf(grad))).toEqual(otherInputs.map(({ grad }) => bitsOf(grad)));
    const grads = (builtModule: BuiltModule) => {
      const ownBias = returnedBiases(row.layer, builtModule);
      const parameters = [...builtModule.module.namedParameters()].filter(
        ([, parameter]) => !ownBias.includes(parameter),
      );
      return parameters.map(([name, { grad }]) => [name, bitsOf(grad)]);
    };
    expect(grads(returningModule)).toEqual(grads(plainModule));
    const states = ({ module }: BuiltModule) =>
      [...module.namedQuantizations().values()].map((quantization) => quantization.snapshotSync());
    expect(states(returningModule)).toEqual(states(plainModule));
    for (const variable of [...leaves, ...inputs.flatMap(inputsWithGradients)]) variable.zeroGrad();
  });
});

testInScope("without gradients the bias is returned too, and nothing is recorded", () => {
  using layer = new Linear(backend(), SIZE, SIZE);
  const x = upload(backend(), drawnValues(1, [ROWS, SIZE]));
  const [out, bias] = noGrad(() => layer.forwardWithBias(x));
  expect([out.requiresGrad, bias?.requiresGrad]).toEqual([false, false]);
  expect(bias?.shape).toEqual([SIZE]);
});
