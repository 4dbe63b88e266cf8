/** Optimizer steps, which update their tensors in place. */
import * as fc from "fast-check";
import type { Backend } from "../../../src/backends/backend.js";
import { adamw, sgd } from "../../../src/ops/update/optimizer.js";
import type { Shape, WideDType } from "../../../src/tensor/shape.js";
import type { Tensor } from "../../../src/tensor/tensor.js";
import { laneShape, wideTensor } from "../../arbitraries/wide.js";
import { mul } from "../../oracle/core/rational.js";
import * as oracle from "../../oracle/update/optimizer.js";
import { download, fromCodes, PlainTensor, upload, wideValues } from "../../values/plain.js";
import { rounded } from "../../values/rounded.js";
import type { Answer, Operation } from "../operation.js";

/** The tensors in their state before the step. */
interface StepCase {
  readonly parameter: PlainTensor<"f32">;
  readonly grad: PlainTensor<WideDType>;
  readonly copy?: PlainTensor<"bf16" | "f16"> | undefined;
  readonly gradScale?: number | undefined;
  readonly noop?: number | undefined;
}

type Numbers<T> = Omit<T, "g" | "p" | "m" | "v">;

export interface SgdCase extends StepCase {
  readonly m: PlainTensor<"f32">;
  readonly options: Numbers<oracle.SgdStep>;
}

export interface AdamwCase extends StepCase {
  readonly m: PlainTensor<"f32">;
  /** The second moment: nonnegative, or arbitrary bits. */
  readonly v: PlainTensor<"f32">;
  readonly options: Numbers<oracle.AdamwStep>;
}

const MAX_ELEMENTS = 300;

function stepCase(shape: Shape) {
  const half = fc.constantFrom("bf16" as const, "f16" as const);
  return {
    parameter: wideTensor(shape, { dtype: "f32", edges: [0, 1, 2 ** -133, 65520] }),
    grad: wideTensor(shape),
    m: wideTensor(shape, { dtype: "f32" }),
    copy: fc.option(
      half.chain((dtype) => wideTensor(shape, { dtype })),
      { nil: undefined },
    ),
    gradScale: fc.option(fc.constantFrom(1, 0.3, 2 ** -16, 0, -1, 2 ** 100, Number.NaN, 1 / 0), {
      nil: undefined,
      freq: 2,
    }),
    noop: fc.option(fc.constantFrom(0, 1, 1 + 2 ** -23, 2, Number.NaN), { nil: undefined, freq: 2 }),
  };
}

const learningRate = fc.constantFrom(1e-3, 0.1, 1, 0, 1e-60, 2 ** -140, 1e30);
const weightDecay = fc.constantFrom(0, 0.01, 1, 1e-60, 2 ** -149, 1e10);

const sgdOptions: fc.Arbitrary<SgdCase["options"]> = fc
  .record({
    learningRate,
    weightDecay,
    momentum: fc.constantFrom(0.9, 0, 0.1, 1, 1e-60, 2 ** -130, 3),
    dampening: fc.constantFrom(0, 0.1, 0.9, 1, 1e-9),
    nesterov: fc.boolean(),
    first: fc.boolean(),
  })
  .map((drawn) => {
    const allowed = Math.fround(drawn.momentum) !== 0;
    return drawn.nesterov ? { ...drawn, dampening: 0, nesterov: allowed } : drawn;
  });

const adamwOptions: fc.Arbitrary<AdamwCase["options"]> = fc.record({
  learningRate,
  weightDecay,
  beta1: fc.constantFrom(0.9, 0, 0.5, 0.95, 1e-60, 1 - 2 ** -24),
  beta2: fc.constantFrom(0.999, 0, 0.95, 0.9999, 2 ** -126, 1 - 2 ** -24),
  eps: fc.constantFrom(1e-8, 0, 1, 2 ** -149, 1e-60),
  decoupled: fc.boolean(),
  step: fc.oneof(
    fc.constantFrom(1, 2, 3, 1000, 2 ** 31, Number.MAX_SAFE_INTEGER),
    fc.integer({ min: 1, max: 1e5 }),
  ),
});

/** The tensors of a case on a backend, scalars included. */
function inputsOn(backend: Backend, { parameter, grad, copy, gradScale, noop }: StepCase) {
  const scalar = (value: number): Tensor<"f32"> =>
    upload(backend, new PlainTensor("f32", [1], Float32Array.of(value)));
  return {
    parameter: upload(backend, parameter),
    grad: upload(backend, grad),
    ...(copy ? { copy: upload(backend, copy) } : {}),
    ...(gradScale === undefined ? {} : { gradScale: scalar(gradScale) }),
    ...(noop === undefined ? {} : { noop: scalar(noop) }),
  };
}

/** The tensors after the step. */
function downloads(tensors: Readonly<Record<string, Tensor | undefined>>): Answer {
  const present = Object.entries(tensors).flatMap(([name, x]) => (x ? [[name, download(x)] as const] : []));
  return Object.fromEntries(present);
}

type State = "m" | "v";

/** The tensors after a step that applies `make` to each element; `states` names the optimizer's state tensors. */
function stepped<C extends StepCase & { readonly [K in S]: PlainTensor<"f32"> }, S extends State>(
  input: C,
  states: readonly S[],
  make: (element: { readonly g: number; readonly p: number } & Record<S, number>) => Record<"p" | S, number>,
): Answer {
  const { parameter, grad, copy, gradScale = 1, noop } = input;
  const kept = Object.fromEntries(states.map((name) => [name, input[name] as PlainTensor<"f32">]));
  const before = { parameter, ...kept };
  if (noop === 1) return copy ? { ...before, copy } : before;
  const [p, g] = [wideValues(parameter), wideValues(grad)];
  const values = Object.fromEntries(states.map((name) => [name, wideValues(input[name])])) as Record<
    S,
    Float32Array
  >;
  const elements = Array.from(p, (_, i) => {
    const state = Object.fromEntries(states.map((name) => [name, values[name][i]])) as Record<S, number>;
    return make({ ...state, p: p[i] as number, g: mul(g[i] as number, Math.fround(gradScale)) });
  });
  const tensor = <D extends WideDType>(name: "p" | S, dtype: D): PlainTensor<D> =>
    rounded(
      dtype,
      parameter.shape,
      elements.map((element) => element[name]),
    );
  const after: Record<string, PlainTensor> = { parameter: tensor("p", "f32") };
  for (const name of states) after[name] = tensor(name, "f32");
  return copy ? { ...after, copy: tensor("p", copy.dtype) } : after;
}

/** SGD steps on tensors of one shape. */
export function sgdCase(shape: Shape): fc.Arbitrary<SgdCase> {
  return fc.record({ ...stepCase(shape), options: sgdOptions });
}

export const sgdOperation: Operation<SgdCase> = {
  arbitrary: laneShape(MAX_ELEMENTS).chain(sgdCase),
  run(backend, { options, ...input }) {
    const inputs = { ...inputsOn(backend, input), m: upload(backend, input.m) };
    sgd(inputs, options);
    const { parameter, m, copy } = inputs;
    return downloads({ parameter, m, copy });
  },
  oracle: ({ options, ...input }) =>
    stepped(input, ["m"], (element) => oracle.sgd({ ...element, ...options })),
};

/** AdamW steps on tensors of one shape. */
export function adamwCase(shape: Shape): fc.Arbitrary<AdamwCase> {
  const any = wideTensor(shape, { dtype: "f32" });
  const squares = any.map((x) =>
    fromCodes(
      "f32",
      x.shape,
      x.codes.map((code) => code & 0x7fffffff),
    ),
  );
  const v = fc.oneof({ weight: 4, arbitrary: squares }, any);
  return fc.record({ ...stepCase(shape), v, options: adamwOptions });
}

export const adamwOperation: Operation<AdamwCase> = {
  arbitrary: laneShape(MAX_ELEMENTS).chain(adamwCase),
  run(backend, { options, ...input }) {
    const states = { m: upload(backend, input.m), v: upload(backend, input.v) };
    const inputs = { ...inputsOn(backend, input), ...states };
    adamw(inputs, options);
    const { parameter, m, v, copy } = inputs;
    return downloads({ parameter, m, v, copy });
  },
  oracle: ({ options, ...input }) =>
    stepped(input, ["m", "v"], (element) => oracle.adamw({ ...element, ...options })),
};
