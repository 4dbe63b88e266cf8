/** Parameters and states that are divided among ranks are the parts of one process's, and have its scales. */
import { describe, expect, it } from "vitest";
import type { Backend } from "../../../../src/backends/backend.js";
import {
  AdamW,
  type Module,
  normal,
  type Optimizer,
  Parameter,
  type QuantizedTensor,
  Scope,
  SGD,
  type Shape,
  type Tensor,
  tensor,
  type WideDType,
} from "../../../../src/index.js";
import { persistent } from "../../../../src/modules/parameter.js";
import { castTo } from "../../../../src/ops/cast/cast.js";
import { isStateScale } from "../../../../src/optimizers/optimizer.js";
import { type TensorPart, wholePart } from "../../../../src/tensor/part.js";
import { elementCount } from "../../../../src/tensor/shape.js";
import { product } from "../../../arbitraries/covering.js";
import { sampleCases } from "../../harness/draws.js";
import { useBackends } from "../../harness/ranks/backends.js";
import { dividedNets, divisions, elementsOfPart, MOST } from "../divided-net.js";

const backends = useBackends(MOST);
const STEPS = 2;

type Optimized = Module | ReadonlyMap<string, Parameter>;
const ADAMW = { learningRate: 0.01, weightDecay: 0.01 } as const;
const OPTIMIZERS: Readonly<Record<string, (optimized: Optimized) => Optimizer>> = {
  "AdamW, e4m3 and f16": (optimized) =>
    new AdamW(optimized, { ...ADAMW, expAvgDtype: "e4m3", expAvgSqDtype: "f16", masterWeightDtype: "f16" }),
  "AdamW, bf16 and e4m3, remainders": (optimized) =>
    new AdamW(optimized, {
      ...ADAMW,
      expAvgDtype: "bf16",
      expAvgSqDtype: "e4m3",
      storeParamRemainders: true,
    }),
  "SGD, f16": (optimized) =>
    new SGD(optimized, { learningRate: 0.1, momentum: 0.9, momentumDtype: "f16", masterWeightDtype: "f16" }),
};

const ROWS = product({
  optimizer: Object.keys(OPTIMIZERS),
  division: divisions(16, 32),
  dtype: ["bf16", "f32"],
} as const);
/** Optimizers of parameters that both axes divide. */
const BOTH = ROWS.filter(
  ({ division: { tp, dp, isSharded }, dtype }) => tp * dp === 4 && isSharded && dtype === "bf16",
);
const CASES = [...BOTH, ...sampleCases(ROWS.filter((row) => !BOTH.includes(row)))];

const drawValues = (seed: number, shape: Shape): Float32Array =>
  normal({ seed: BigInt(seed), offset: 0n }, elementCount(shape), 1);
const uploadAs = (
  backend: Backend,
  values: Float32Array,
  shape: Shape,
  dtype: WideDType,
): Tensor<WideDType> => castTo(tensor(backend, values, shape), dtype);
const partOf = ({ part, shape }: Parameter): TensorPart =>
  part ?? wholePart(shape.length === 0 ? [1] : shape);

/** This rank's elements of a full tensor. */
const ownPart = (parameter: Parameter, fullValues: Float32Array): Float32Array =>
  Float32Array.from(elementsOfPart(fullValues, partOf(parameter)));

/** Every tensor of an optimizer, as numbers: parameters, masters, moments and scales. */
function tensorsOf({ slots }: Optimizer): readonly (readonly [string, string, Tensor])[] {
  return [...slots].flatMap(([name, { parameter, master, buffers }]) =>
    [
      ["parameter", parameter.value as Exclude<Parameter["value"], QuantizedTensor>] as const,
      ["master", master] as const,
      ...buffers,
    ].map(([owner, x]) => [name, owner, x as Tensor] as const),
  );
}

describe("an optimizer of divided parameters has the parts of one process's tensors, and its scales", () => {
  it.each(CASES.map((row) => [JSON.stringify(row), row] as const))("%s", async (_, row) => {
    const { optimizer, division, dtype } = row;
    const make = OPTIMIZERS[optimizer] as (optimized: Optimized) => Optimizer;
    const nets = dividedNets(backends, division, dtype);
    const optimizers = nets.map((net) => {
      using _ = new Scope();
      for (const [i, parameter] of net.parameters().entries()) {
        const values = ownPart(parameter, drawValues(i, partOf(parameter).shape));
        const value = parameter.value as Tensor<WideDType>;
        value.paste(uploadAs(net.backend, values, parameter.shape, value.dtype), 0);
      }
      return make(net);
    });
    const [firstNet] = nets as readonly [Module, ...Module[]];
    const [backend] = backends as readonly [Backend, ...Backend[]];
    const shapes = firstNet.parameters().map((parameter) => partOf(parameter).shape);
    const fullTensors = new Map(
      [...firstNet.namedParameters()].map(([name, { value }], i) => {
        using _ = new Scope();
        const shape = shapes[i] as Shape;
        const fullTensor = uploadAs(backend, drawValues(i, shape), shape, (value as Tensor<WideDType>).dtype);
        return [name, new Parameter(persistent(fullTensor))] as const;
      }),
    );
    const singleOptimizer = make(fullTensors);
    for (let step = 0; step <= STEPS; step++) {
      for (const [rank, optimizer] of optimizers.entries()) {
        const named = nets[rank]?.namedParameters() as ReadonlyMap<string, Parameter>;
        const expected = tensorsOf(singleOptimizer);
        for (const [i, [name, tensorName, x]] of tensorsOf(optimizer).entries()) {
          const [, , fullTensor] = expected[i] as readonly [string, string, Tensor];
          const allValues = (await fullTensor.data()) as Uint16Array;
          const part = isStateScale(tensorName)
            ? [...allValues]
            : elementsOfPart(allValues, partOf(named.get(name) as Parameter));
          expect(
            [...((await x.data()) as Uint16Array)],
            `${tensorName} of ${name}, rank ${rank}, step ${step}`,
          ).toEqual(part);
        }
      }
      if (step === STEPS) break;
      for (const [rank, optimizer] of [...optimizers, singleOptimizer].entries()) {
        using _ = new Scope();
        const parameters = [...optimizer.slots.values()].map(({ parameter }) => parameter);
        for (const [i, parameter] of parameters.entries()) {
          const grad = drawValues(100 * (step + 1) + i, shapes[i] as Shape);
          const values = rank < optimizers.length ? ownPart(parameter, grad) : grad;
          parameter.grad = persistent(uploadAs(parameter.value.backend, values, parameter.shape, dtype));
        }
        optimizer.step();
        optimizer.zeroGrad();
      }
    }
    for (const disposable of [...optimizers, singleOptimizer, ...nets, ...fullTensors.values()])
      disposable.dispose();
  });
});
