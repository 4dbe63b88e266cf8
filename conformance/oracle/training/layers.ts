/** A model of the layers that contain linear products, as functions on a tape. */
import { type ActivationName, gatedElement, RULES } from "../elementwise/activation.js";
import type { CallModel, LinearInputModel, LinearModel, Run } from "./linear.js";
import { type Matrix, mapped, matrix } from "./matrix.js";
import { type NormModel, normedInput, normParametersOf } from "./norms.js";
import { QuantizedModel } from "./quantized.js";
import { fuses, fusesGradient } from "./recipes.js";
import { type Passed, type Tape, type Value, wideOf } from "./tape.js";

function parametersOf({ weight, bias }: LinearModel): readonly Value[] {
  return bias ? [weight, bias] : [weight];
}

export function linear(run: Run, tape: Tape, x: Value, layer: LinearModel, call: CallModel): Value {
  const { data, requiresGrad } = x;
  const { dtype } = data;
  const input: LinearInputModel = {
    from: data instanceof QuantizedModel ? data : { x: data, computed: false },
    wide: () => wideOf(data),
    dtype,
    requiresGrad,
  };
  const { out, backward } = layer.forward(run, input, call);
  return tape.one([x, ...parametersOf(layer)], out, (grad) => {
    const { x: dx, weight, bias } = backward(grad);
    return [dx, weight, bias];
  });
}

/** The result of a norm and a linear layer, and the result of the norm if it is returned too. */
export function normLinear(
  run: Run,
  tape: Tape,
  x: Value,
  { norm, layer }: { readonly norm: NormModel; readonly layer: LinearModel },
  call: CallModel,
  returned: boolean,
): readonly Value[] {
  const normed = normedInput(run, x, norm, returned);
  const { out, backward } = layer.forward(run, normed.input, call);
  const inputs = [x, ...normParametersOf(norm), ...parametersOf(layer)];
  const results = returned ? [out, normed.out] : [out];
  return tape.record(inputs, results, ([dy, dnormed]) => {
    const { x: dx, weight, bias } = dy ? backward(dy) : {};
    const normGradients = normed.backward(dx, dnormed);
    const before = [x, ...normParametersOf(norm)].map((_, i) => normGradients[i]);
    return [...before, weight, bias];
  });
}

export interface Act {
  readonly kind: ActivationName;
  readonly gated: boolean;
}

/** The f32 values of an activation, or of its gated form, where the first half of the columns is activated. */
export function activate(h: Matrix, { kind, gated }: Act): Matrix {
  const rule = RULES[kind];
  if (!gated) return mapped(h, rule.value, "f32");
  const half = h.shape[1] / 2;
  const pairIndex = pairOf(h);
  return matrix([h.shape[0], half], "f32", (i, j) => gatedElement(rule, ...pairIndex(i, j), 0).out);
}

function pairOf({
  data,
  shape: [, columns],
}: Matrix): (i: number, j: number) => readonly [a: number, g: number] {
  return (i, j) => [data[i * columns + j] as number, data[i * columns + columns / 2 + j] as number];
}

/** The f32 values of an activation's gradient. */
export function activateBackward(grad: Matrix, h: Matrix, { kind, gated }: Act): Matrix {
  const rule = RULES[kind];
  const [rows, columns] = h.shape;
  if (!gated) return mapped(h, (x, i) => Math.fround(rule.derivative(x)) * (grad.data[i] as number), "f32");
  const half = columns / 2;
  const pairIndex = pairOf(h);
  return matrix([rows, columns], "f32", (i, j) => {
    const column = j % half;
    const { dA, dG } = gatedElement(rule, ...pairIndex(i, column), grad.data[i * half + column] as number);
    return j < half ? dA : dG;
  });
}

export interface MLPModel {
  readonly norm: NormModel;
  readonly fc1: LinearModel;
  readonly fc2: LinearModel;
  readonly act: Act;
}

export function mlp(
  run: Run,
  tape: Tape,
  x: Value,
  { norm, fc1, fc2, act }: MLPModel,
  call: CallModel,
): Value {
  const { dtype } = x.wide;
  const normed = normedInput(run, x, norm, false);
  const first = fc1.forward(run, normed.input, { ...call, fp8Output: false });
  const h = wideOf(first.out);
  const activated = activate(h, act);
  const rounded = (values: Matrix): Matrix => mapped(values, (value) => value, dtype);
  const before = [x, ...normParametersOf(norm), ...parametersOf(fc1)];
  const { recipe } = run;
  const fused = recipe !== undefined && fuses(recipe);
  const fusedBack = recipe !== undefined && fusesGradient(recipe, act.gated);
  const second = fc2.forward(
    run,
    {
      from: fused
        ? { x: { ...activated, dtype }, computed: "activation" }
        : { x: rounded(activated), computed: false },
      wide: () => rounded(activated),
      dtype,
      requiresGrad: before.some(({ requiresGrad }) => requiresGrad),
    },
    call,
  );
  return tape.one([...before, ...parametersOf(fc2)], second.out, (dy) => {
    const outer = second.backward(dy);
    const inner = outer.x ? throughActivation(wideOf(outer.x), h, act, fusedBack, first.backward) : {};
    const normGradients = normed.backward(inner.x, undefined);
    const gradients = [x, ...normParametersOf(norm)].map((_, i) => normGradients[i]);
    const of = (layer: LinearModel, weight: Passed | undefined, bias: Passed | undefined) =>
      layer.bias ? [weight, bias] : [weight];
    return [...gradients, ...of(fc1, inner.weight, inner.bias), ...of(fc2, outer.weight, outer.bias)];
  });
}

/** The gradient through the activation. It is rounded, unless it is fused with its quantization. */
function throughActivation(
  grad: Matrix,
  h: Matrix,
  act: Act,
  fused: boolean,
  backward: ReturnType<LinearModel["forward"]>["backward"],
) {
  const values = activateBackward(grad, h, act);
  const dh = mapped(values, (value) => value, h.dtype);
  return fused ? backward(dh, { x: { ...values, dtype: grad.dtype }, computed: "activation" }) : backward(dh);
}
