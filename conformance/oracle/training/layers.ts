/** A model of the layers that contain linear products, as functions on a tape. */
import { type ActivationName, gatedElement, RULES } from "../elementwise/activation.js";
import type { CallModel, LinearInputModel, LinearModel, Run } from "./linear.js";
import { type Matrix, mapMatrix, matrix } from "./matrix.js";
import { type NormModel, normedInput, normParameters } from "./norms.js";
import { QuantizedModel } from "./quantized.js";
import { fuses, fusesGradient } from "./recipes.js";
import { type Passed, type Tape, type Value, wideOf } from "./tape.js";

function linearParameters({ weight, bias }: LinearModel): readonly Value[] {
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
  return tape.one([x, ...linearParameters(layer)], out, (grad) => {
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
  returnsNorm: boolean,
): readonly Value[] {
  const normResult = normedInput(run, x, norm, returnsNorm);
  const { out, backward } = layer.forward(run, normResult.input, call);
  const inputs = [x, ...normParameters(norm), ...linearParameters(layer)];
  const results = returnsNorm ? [out, normResult.out] : [out];
  return tape.record(inputs, results, ([dy, normGrad]) => {
    const { x: dx, weight, bias } = dy ? backward(dy) : {};
    const normGradients = normResult.backward(dx, normGrad);
    const normInputs = [x, ...normParameters(norm)].map((_, i) => normGradients[i]);
    return [...normInputs, weight, bias];
  });
}

export interface Act {
  readonly kind: ActivationName;
  readonly gated: boolean;
}

/** The f32 values of an activation, or of its gated form, where the first half of the columns is activated. */
export function activate(h: Matrix, { kind, gated }: Act): Matrix {
  const rule = RULES[kind];
  if (!gated) return mapMatrix(h, rule.value, "f32");
  const half = h.shape[1] / 2;
  const pairIndex = gatedPair(h);
  return matrix([h.shape[0], half], "f32", (i, j) => gatedElement(rule, ...pairIndex(i, j), 0).out);
}

function gatedPair({
  data,
  shape: [, columns],
}: Matrix): (i: number, j: number) => readonly [a: number, g: number] {
  return (i, j) => [data[i * columns + j] as number, data[i * columns + columns / 2 + j] as number];
}

/** The f32 values of an activation's gradient. */
export function activateBackward(grad: Matrix, h: Matrix, { kind, gated }: Act): Matrix {
  const rule = RULES[kind];
  const [rows, columns] = h.shape;
  if (!gated)
    return mapMatrix(h, (x, i) => Math.fround(rule.derivative(x)) * (grad.data[i] as number), "f32");
  const half = columns / 2;
  const pairIndex = gatedPair(h);
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
  const normResult = normedInput(run, x, norm, false);
  const firstLinear = fc1.forward(run, normResult.input, { ...call, fp8Output: false });
  const h = wideOf(firstLinear.out);
  const activated = activate(h, act);
  const roundValues = (values: Matrix): Matrix => mapMatrix(values, (value) => value, dtype);
  const inputs = [x, ...normParameters(norm), ...linearParameters(fc1)];
  const { recipe } = run;
  const isFused = recipe !== undefined && fuses(recipe);
  const fusedBack = recipe !== undefined && fusesGradient(recipe, act.gated);
  const second = fc2.forward(
    run,
    {
      from: isFused
        ? { x: { ...activated, dtype }, computed: "activation" }
        : { x: roundValues(activated), computed: false },
      wide: () => roundValues(activated),
      dtype,
      requiresGrad: inputs.some(({ requiresGrad }) => requiresGrad),
    },
    call,
  );
  return tape.one([...inputs, ...linearParameters(fc2)], second.out, (dy) => {
    const outer = second.backward(dy);
    const inner = outer.x ? throughActivation(wideOf(outer.x), h, act, fusedBack, firstLinear.backward) : {};
    const normGradients = normResult.backward(inner.x, undefined);
    const gradients = [x, ...normParameters(norm)].map((_, i) => normGradients[i]);
    const layerGradients = (layer: LinearModel, weight: Passed | undefined, bias: Passed | undefined) =>
      layer.bias ? [weight, bias] : [weight];
    return [
      ...gradients,
      ...layerGradients(fc1, inner.weight, inner.bias),
      ...layerGradients(fc2, outer.weight, outer.bias),
    ];
  });
}

/** The gradient through the activation. It is rounded, unless it is fused with its quantization. */
function throughActivation(
  grad: Matrix,
  h: Matrix,
  act: Act,
  isFused: boolean,
  backward: ReturnType<LinearModel["forward"]>["backward"],
) {
  const values = activateBackward(grad, h, act);
  const dh = mapMatrix(values, (value) => value, h.dtype);
  return isFused
    ? backward(dh, { x: { ...values, dtype: grad.dtype }, computed: "activation" })
    : backward(dh);
}
