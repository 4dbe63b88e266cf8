/** Lists of optimizer steps, run as one operation or as one operation after the other. */
import * as fc from "fast-check";
import type { Backend } from "../../../src/backends/backend.js";
import { adamw, adamwEach, sgd, sgdEach } from "../../../src/ops/update/optimizer.js";
import { Scope } from "../../../src/tensor/scope.js";
import { type Shape, sameShape } from "../../../src/tensor/shape.js";
import type { Tensor } from "../../../src/tensor/tensor.js";
import type { Answer } from "../../operations/operation.js";
import { type AdamwCase, adamwCase, type SgdCase, sgdCase } from "../../operations/update/optimizer.js";
import { download, PlainTensor, upload } from "../../values/plain.js";

/** Steps, and pairs of steps of which the first's gradient shall be the second's parameter or gradient. */
export interface StepList<C> {
  readonly steps: readonly C[];
  /** For each step the number of the options that it has; steps with the same number have the same options. */
  readonly options: readonly number[];
  readonly shared: readonly (readonly [step: number, other: number, what: "parameter" | "grad"])[];
  /** Whether all steps have the factor and the flag of the first step, in the same tensors. */
  readonly sharesScalars: boolean;
}

/** Sizes around accesses of four elements and tiles of 2048, and empty tensors. */
const SHAPES: readonly Shape[] = [[], [0], [1], [3], [4], [2, 3], [31], [64], [5, 13]];
const LARGE: readonly Shape[] = [[2047], [2048], [2049], [3, 1367], [4100]];

const listOf = <C>(caseOf: (shape: Shape) => fc.Arbitrary<C>, length: fc.Arbitrary<number>) =>
  fc.tuple(length, fc.integer({ min: 1, max: 40 })).chain(([count, different]) => {
    const index = fc.nat({ max: Math.max(count - 1, 0) });
    const shape = fc.oneof(
      { weight: 12, arbitrary: fc.constantFrom(...SHAPES) },
      { weight: 1, arbitrary: fc.constantFrom(...LARGE) },
    );
    return fc.record<StepList<C>>({
      steps: fc.array(shape.chain(caseOf), { minLength: count, maxLength: count }),
      options: fc.array(fc.nat({ max: different - 1 }), { minLength: count, maxLength: count }),
      shared: fc.oneof(
        { weight: 3, arbitrary: fc.constant([]) },
        {
          weight: 1,
          arbitrary: fc.array(fc.tuple(index, index, fc.constantFrom("parameter", "grad")), { maxLength: 3 }),
        },
      ),
      sharesScalars: fc.boolean(),
    });
  });

export const sgdList = (length: fc.Arbitrary<number>) => listOf<SgdCase>(sgdCase, length);
export const adamwList = (length: fc.Arbitrary<number>) => listOf<AdamwCase>(adamwCase, length);

type AnyCase = SgdCase | AdamwCase;

/** The tensors of each step on a backend, and its options. */
function listOn<C extends AnyCase>(backend: Backend, { steps, options, shared, sharesScalars }: StepList<C>) {
  const scalar = (value: number | undefined): Tensor<"f32"> | undefined =>
    value === undefined ? undefined : upload(backend, new PlainTensor("f32", [1], Float32Array.of(value)));
  const common = { gradScale: scalar(steps[0]?.gradScale), noop: scalar(steps[0]?.noop) };
  const uploaded = steps.map((step, i) => {
    const first = options.indexOf(options[i] as number);
    return {
      tensors: {
        parameter: upload(backend, step.parameter),
        grad: upload(backend, step.grad) as Tensor,
        copy: step.copy && upload(backend, step.copy),
        ...(sharesScalars ? common : { gradScale: scalar(step.gradScale), noop: scalar(step.noop) }),
      },
      m: upload(backend, step.m),
      v: "v" in step ? upload(backend, step.v) : undefined,
      options: (steps[first] as C).options as C["options"],
    };
  });
  for (const [i, j, what] of shared) {
    const [step, other] = [uploaded[i], uploaded[j]];
    if (i === j || !step || !other || !sameShape(step.tensors.grad.shape, other.tensors.grad.shape)) continue;
    step.tensors.grad = other.tensors[what];
  }
  return uploaded;
}

type Uploaded<C extends AnyCase> = ReturnType<typeof listOn<C>>;

function answerOf(list: Uploaded<AnyCase>): Answer {
  const answer: Record<string, ReturnType<typeof download>> = {};
  for (const [i, { tensors, m, v }] of list.entries())
    for (const [name, x] of Object.entries({ parameter: tensors.parameter, copy: tensors.copy, m, v }))
      if (x) answer[`${i} ${name}`] = download(x);
  return answer;
}

/** The tensors after the steps of a list that is run as a whole. */
export function sgdTogether(backend: Backend, list: StepList<SgdCase>): Answer {
  using _ = new Scope();
  const steps = listOn(backend, list);
  sgdEach(steps);
  return answerOf(steps);
}

/** The tensors after one step after the other. */
export function sgdOneByOne(backend: Backend, list: StepList<SgdCase>): Answer {
  using _ = new Scope();
  const steps = listOn(backend, list);
  for (const { tensors, m, options } of steps) sgd({ ...tensors, m }, options);
  return answerOf(steps);
}

/** As `sgdTogether`, for AdamW. */
export function adamwTogether(backend: Backend, list: StepList<AdamwCase>): Answer {
  using _ = new Scope();
  const steps = listOn(backend, list);
  adamwEach(steps);
  return answerOf(steps);
}

/** As `sgdOneByOne`, for AdamW. */
export function adamwOneByOne(backend: Backend, list: StepList<AdamwCase>): Answer {
  using _ = new Scope();
  const steps = listOn(backend, list);
  for (const { tensors, m, v, options } of steps) adamw({ ...tensors, m, v: v as Tensor<"f32"> }, options);
  return answerOf(steps);
}
