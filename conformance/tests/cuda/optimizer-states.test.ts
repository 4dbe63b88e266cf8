/**
 * Optimizer steps on a GPU with states of every dtype: over every pair of options, three steps give the parameters, masters,
 * codes and scales of the reference.
 */
import { expect, it } from "vitest";
import type { Backend } from "../../../src/backends/backend.js";
import { Parameter } from "../../../src/modules/parameter.js";
import { castTo } from "../../../src/ops/cast/cast.js";
import { tensor } from "../../../src/ops/create.js";
import { AdamW } from "../../../src/optimizers/adamw.js";
import type { Optimizer } from "../../../src/optimizers/optimizer.js";
import { SGD } from "../../../src/optimizers/sgd.js";
import { Scope } from "../../../src/tensor/scope.js";
import { elementCount, type Shape } from "../../../src/tensor/shape.js";
import type { Tensor } from "../../../src/tensor/tensor.js";
import { pairwise } from "../../arbitraries/covering.js";
import { splitmix32 } from "../../arbitraries/random.js";
import { assertSameAnswer } from "../../laws/laws.js";
import type { Answer } from "../../operations/operation.js";
import { download } from "../../values/plain.js";
import { describeOnGpu, SEED, useGpu } from "../harness/gpu/gpu.js";

const DTYPES = ["f32", "bf16", "f16", "e4m3"] as const;
const TABLE = {
  rule: ["adamw", "sgd"],
  first: DTYPES,
  second: DTYPES,
  masters: ["f32", "f16", "remainders"],
  parameter: ["bf16", "f16", "f32"],
  grad: ["f32", "bf16"],
  noop: [undefined, 0, 1],
  shape: [[], [1], [7], [129, 65], [0, 4], [2, 4100]] as readonly Shape[],
} as const;
const next = splitmix32(SEED);
type Case = ReturnType<typeof pairwise<typeof TABLE>>[number];
const CASES = pairwise(TABLE, (count) => next() % count);

/** Numbers of either sign with magnitudes from 2^-10 to 2. */
function numbers(shape: Shape, seed: number): Float32Array {
  const draw = splitmix32(seed);
  const drawNumber = () => ((draw() / 2 ** 31 - 1) * 2) / 2 ** (draw() % 11);
  return Float32Array.from({ length: elementCount(shape) }, drawNumber);
}

function optimizerOf(parameter: Parameter, { rule, first, second, masters }: Case): Optimizer {
  const options = {
    learningRate: 0.01,
    weightDecay: 0.1,
    ...(masters === "remainders" ? { storeParamRemainders: true } : { masterWeightDtype: masters }),
  };
  const parameters = new Map([["p", parameter]]);
  return rule === "adamw"
    ? new AdamW(parameters, { ...options, expAvgDtype: first, expAvgSqDtype: second })
    : new SGD(parameters, { ...options, momentum: 0.9, momentumDtype: first });
}

/** The parameter and the states after each step on a backend. */
function statesOn(backend: Backend, of: Case): Answer {
  using _scope = new Scope();
  const values = (seed: number) => tensor(backend, numbers(of.shape, seed), of.shape);
  const parameter = new Parameter(castTo(values(1), of.parameter));
  using optimizer = optimizerOf(parameter, of);
  const answer: Record<string, ReturnType<typeof download>> = {};
  for (let step = 0; step < 3; step++) {
    parameter.grad = castTo(values(2 + step), of.grad);
    const isSkipped = step === 1 && of.noop !== undefined;
    optimizer.step(isSkipped ? { noop: tensor(backend, [of.noop]) } : {});
    answer[`${step} parameter`] = download(parameter.value as Tensor);
    const { master, buffers } = optimizer.slots.get("p") as NonNullable<
      ReturnType<typeof optimizer.slots.get>
    >;
    answer[`${step} master`] = download(master);
    for (const [name, buffer] of buffers) answer[`${step} ${name}`] = download(buffer);
  }
  parameter.dispose();
  return answer;
}

describeOnGpu("optimizer states on a GPU", () => {
  const { gpu, reference } = useGpu();
  it.each(CASES.map((of) => [Object.values(of).join(", "), of] as const))("%s", (_name, of) => {
    const answer = statesOn(gpu(), of);
    expect(Object.keys(answer).length).toBeGreaterThan(6);
    assertSameAnswer(answer, statesOn(reference(), of));
  });
});
