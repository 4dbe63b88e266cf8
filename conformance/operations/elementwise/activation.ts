/** Activations, their gated forms, and the derivatives of both. */
import * as fc from "fast-check";
import type { ActivationName, SwigluClamp } from "../../../src/backends/ops.js";
import { ACTIVATION } from "../../../src/formats/contract.gen.js";
import {
  activation,
  activationBackward,
  DEFAULT_CLAMP,
  gated,
  gatedBackward,
} from "../../../src/ops/elementwise/activation.js";
import type { Shape } from "../../../src/tensor/shape.js";
import { laneShape, wideTensor, wideType } from "../../arbitraries/wide.js";
import { mul } from "../../oracle/core/rational.js";
import { gatedElement, RULES, type Rule, swish } from "../../oracle/elementwise/activation.js";
import { download, upload, wideValues } from "../../values/plain.js";
import { rounded, rowsOf } from "../../values/rounded.js";
import type { Operation, TypedInputs } from "../operation.js";

export type ActivationCase = TypedInputs<"activation">;

export type ActivationBackwardCase = TypedInputs<"activationBackward">;

/** A call of a gated activation: out = act(a) * g for x = [a | g]. */
export type GatedCase = TypedInputs<"gated">;

export type GatedBackwardCase = TypedInputs<"gatedBackward">;

/**
 * Inputs where 2^t underflows or overflows in f32 and f64, where derivatives have extrema, and the limits of the
 * default clamp.
 */
export const EDGES = [
  0,
  2 ** -126,
  2 ** -24,
  0.75,
  1.278,
  5.4,
  7,
  10,
  16.6,
  52,
  61,
  88,
  88.723,
  104,
  709,
  2 ** 64,
];

export const kinds = fc.constantFrom(...(Object.keys(ACTIVATION) as ActivationName[]));

const clamps: fc.Arbitrary<SwigluClamp> = fc.oneof(
  fc.constant(DEFAULT_CLAMP),
  fc.record({
    limit: fc.constantFrom(7, 0, 0.3, 2 ** 100),
    alpha: fc.constantFrom(1.702, 1, -1, 0, 2 ** -30, 100),
    offset: fc.constantFrom(1, 0, -0.7, 2 ** 24),
  }),
);

function inputs(shape: Shape) {
  return { x: wideTensor(shape, { edges: EDGES }), kind: kinds, outDtype: wideType() };
}

/** Shapes of [a | g], with the shape of one half. */
const halves = laneShape().map((half) => {
  const lead = half.slice(0, -1);
  const columns = half.at(-1) ?? 1;
  return { half, whole: [...lead, 2 * columns] };
});

/** Adds `clamp` to a silu; no other activation has a clamped form. */
function formed<C extends ActivationCase>(input: C, clamp: SwigluClamp | undefined): C & GatedCase {
  return clamp ? { ...input, kind: "silu", clamp } : input;
}

export const maybeClamp = fc.option(clamps, { nil: undefined, freq: 3 });

export const activationOperation: Operation<ActivationCase> = {
  arbitrary: laneShape().chain((shape) => fc.record(inputs(shape))),
  run: (backend, { x, ...options }) => ({ out: download(activation(upload(backend, x), options)) }),
  oracle: ({ x, kind, outDtype }) => ({
    out: rounded(outDtype, x.shape, Array.from(wideValues(x), RULES[kind].value)),
  }),
};

export const activationBackwardOperation: Operation<ActivationBackwardCase> = {
  arbitrary: laneShape().chain((shape) => fc.record({ ...inputs(shape), grad: wideTensor(shape) })),
  run: (backend, { grad, x, ...options }) => ({
    out: download(activationBackward(upload(backend, grad), upload(backend, x), options)),
  }),
  oracle({ grad, x, kind, outDtype }) {
    const upstream = wideValues(grad);
    const values = Array.from(wideValues(x), (value, i) =>
      mul(Math.fround(RULES[kind].derivative(value)), upstream[i] as number),
    );
    return { out: rounded(outDtype, x.shape, values) };
  },
};

export const gatedOperation: Operation<GatedCase> = {
  arbitrary: halves.chain(({ whole: full }) =>
    fc.tuple(fc.record(inputs(full)), maybeClamp).map(([input, clamp]) => formed(input, clamp)),
  ),
  run: (backend, { x, ...options }) => ({ out: download(gated(upload(backend, x), options)) }),
  oracle({ x, outDtype, ...form }) {
    const half = [...x.shape.slice(0, -1), (x.shape.at(-1) ?? 0) / 2];
    const elements = rowsOf(x).flatMap((row) => gatedRow(row, [], form));
    return {
      out: rounded(
        outDtype,
        half,
        elements.map(({ out }) => out),
      ),
    };
  },
};

export const gatedBackwardOperation: Operation<GatedBackwardCase> = {
  arbitrary: halves.chain(({ half, whole: full }) =>
    fc
      .tuple(fc.record({ ...inputs(full), grad: wideTensor(half) }), maybeClamp)
      .map(([input, clamp]) => formed(input, clamp)),
  ),
  run: (backend, { grad, x, ...options }) => ({
    out: download(gatedBackward(upload(backend, grad), upload(backend, x), options)),
  }),
  oracle({ grad, x, outDtype, ...form }) {
    const upstream = rowsOf(grad);
    const values = rowsOf(x).flatMap((row, i) => {
      const elements = gatedRow(row, upstream[i] ?? [], form);
      return [...elements.map(({ dA }) => dA), ...elements.map(({ dG }) => dG)];
    });
    return { out: rounded(outDtype, x.shape, values) };
  },
};

type Form = Pick<GatedCase, "kind" | "clamp">;

/** Value and gradients of one row of [a | g]. */
function gatedRow(row: readonly number[], grad: readonly number[], { kind, clamp }: Form) {
  const rule: Rule = clamp ? swish(Math.fround(clamp.alpha)) : RULES[kind];
  const bounds = clamp && { limit: Math.fround(clamp.limit), offset: Math.fround(clamp.offset) };
  const n = row.length / 2;
  return row
    .slice(0, n)
    .map((a, i) => gatedElement(rule, a, row[n + i] as number, grad[i] ?? Number.NaN, bounds));
}
