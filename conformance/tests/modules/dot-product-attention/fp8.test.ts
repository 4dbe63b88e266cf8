/**
 * FP8 attention: over every pair of options, several steps give the results, gradients and scales of the same attention in plain
 * numbers.
 */
import { describe, expect, it } from "vitest";
import { autocast } from "../../../../src/autocast.js";
import { DotProductAttention } from "../../../../src/modules/dot-product-attention.js";
import { RandomState } from "../../../../src/quantizers/random-state.js";
import { Variable } from "../../../../src/tape/variable.js";
import { Scope } from "../../../../src/tensor/scope.js";
import type { Tensor } from "../../../../src/tensor/tensor.js";
import { pairwise } from "../../../arbitraries/covering.js";
import { roundedIn } from "../../../oracle/core/scale.js";
import { AttentionScales } from "../../../oracle/training/attention-scales.js";
import type { Slots } from "../../../oracle/training/delayed-slots.js";
import type { Matrix } from "../../../oracle/training/matrix.js";
import { quantizedAttention } from "../../../oracle/training/quantized-attention.js";
import { sampleCases } from "../../harness/draws.js";
import { useBackend } from "../../harness/suite.js";
import { waves } from "../attention/drawn.js";
import {
  allowed,
  argumentsOf,
  BATCH,
  byHead,
  byRow,
  type Case,
  HEADS,
  headsOf,
  RECIPES,
  rowsOf,
  SEED,
  TABLE,
  valuesIn,
  widthOf,
} from "./fp8-case.js";

const backend = useBackend({ threads: 1, datapath: "hopper" });

let state = 1;
const draw = (n: number): number => {
  state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
  return (state >>> 8) % n;
};

const CASES = pairwise(TABLE, draw).map(allowed);

/** Throws unless all numbers have the same bits. */
function expectNumbers(name: string, actual: ArrayLike<number>, expected: ArrayLike<number>): void {
  expect(actual.length, name).toBe(expected.length);
  const first = Array.from(expected).findIndex((value, i) => !Object.is(actual[i], value));
  if (first >= 0)
    throw new Error(`${name}[${first}] is ${actual[first]}; in plain numbers it is ${expected[first]}`);
}

/** [B * Sq, H * V] of one head after the other, [B * H * Sq, V]. */
function headsJoined({ data, dtype }: Matrix, rows: number, width: number): Matrix {
  const joined = new Float32Array(data.length);
  for (let n = 0; n < data.length; n++) {
    const [d, i] = [n % width, Math.floor(n / width) % rows];
    const [h, b] = [Math.floor(n / (width * rows)) % HEADS, Math.floor(n / (width * rows * HEADS))];
    joined[((b * rows + i) * HEADS + h) * width + d] = data[n] as number;
  }
  return { data: joined, shape: [BATCH * rows, HEADS * width], dtype };
}

/** The inverse of `headsJoined`. */
function headsApart({ data, dtype }: Matrix, rows: number, width: number): Matrix {
  const apart = new Float32Array(data.length);
  for (let n = 0; n < data.length; n++) {
    const [d, h] = [n % width, Math.floor(n / width) % HEADS];
    const [i, b] = [Math.floor(n / (width * HEADS)) % rows, Math.floor(n / (width * HEADS * rows))];
    apart[((b * HEADS + h) * rows + i) * width + d] = data[n] as number;
  }
  return { data: apart, shape: [BATCH * HEADS * rows, width], dtype };
}

function expectScales(
  name: string,
  snapshot: { scale: Float32Array; amaxHistory: Float32Array },
  slots: Slots,
): void {
  expectNumbers(`${name} scales`, snapshot.scale, slots.scale);
  expectNumbers(`${name} amaxes`, snapshot.amaxHistory, slots.history.flat());
}

describe("FP8 attention is its definition in plain numbers", () => {
  const titled = CASES.map(
    (of) =>
      [`${of.recipe}, ${of.mask}, ${of.format}, ${of.bias}, ${of.softmaxType}, ${of.dtype}`, of] as const,
  );
  it.each(sampleCases(titled, 20))("%s", (_name, of: Case) => {
    using _scope = new Scope();
    const { options, call, bias, task } = argumentsOf(backend(), of);
    const random = new RandomState(SEED);
    using module = new DotProductAttention(backend(), HEADS, of.widths, { ...options, random });
    const offset = module.softmaxOffset;
    offset?.tensor.paste(waves(backend(), 5, [1, HEADS, 1, 1], "f32"), 0);
    const logits = of.softmaxType === "learnable" ? waves(backend(), 5, [HEADS], "f32") : undefined;
    const [make, plainRecipe] = RECIPES[of.recipe];
    const [recipe, scales] = [make(), new AttentionScales(plainRecipe)];
    for (let step = 0; step < (plainRecipe.kind === "delayed" ? 3 : 1); step++) {
      random.offset = 4n;
      const inputs = (["q", "k", "v"] as const).map((which, i) => {
        const shape = rowsOf(of, which).shape(headsOf(of, which), widthOf(of, which));
        return new Variable(waves(backend(), 10 * step + i + 1, shape, of.dtype), true);
      }) as [Variable, Variable, Variable];
      const out = autocast({ recipe }, () => module.forward(...inputs, call));
      const [q, k, v] = (["q", "k", "v"] as const).map((which, i) =>
        byHead(inputs[i]?.tensor as Tensor, rowsOf(of, which), [headsOf(of, which), widthOf(of, which)]),
      ) as [Matrix, Matrix, Matrix];
      const none = Array.from({ length: HEADS }, () => 0);
      const sinks = of.softmaxType === "vanilla" ? undefined : logits ? [...valuesIn(logits)] : none;
      const expected = quantizedAttention({ ...task, q, k, v, sinks }, scales.rounding());
      const [rows, width] = [rowsOf(of, "q"), widthOf(of, "v")];
      const plainOut = headsApart(expected.out, rows.length, width);
      expectNumbers(`result of step ${step}`, valuesIn(out.tensor), byRow(plainOut, rows, [HEADS, width]));
      scales.forward?.update();

      const grad = waves(backend(), 10 * step + 6, out.shape, of.dtype);
      out.backward(grad);
      const dout = headsJoined(byHead(grad, rows, [HEADS, width]), rows.length, width);
      const all = valuesIn(grad);
      const columns = HEADS * width;
      const grads = expected.backward(dout, { ...dout, data: all, shape: [all.length / columns, columns] });
      scales.backward?.update();
      for (const [i, which] of (["q", "k", "v"] as const).entries()) {
        const sizes = [headsOf(of, which), widthOf(of, which)] as const;
        const plain = byRow([grads.dq, grads.dk, grads.dv][i] as Matrix, rowsOf(of, which), sizes);
        expectNumbers(`gradient of ${which} in step ${step}`, valuesIn(inputs[i]?.grad as Tensor), plain);
      }
      if (bias) {
        const rounded = valuesIn(bias.grad as Tensor);
        const plain = (grads.dbias as number[]).map((x) => roundedIn(x, of.dtype));
        expectNumbers(`gradient of the bias in step ${step}`, rounded, plain);
      }
      if (offset)
        expectNumbers(
          `gradient of the sinks in step ${step}`,
          valuesIn(offset.grad as Tensor),
          grads.dsinks as number[],
        );
      for (const each of [...inputs, bias, offset]) each?.zeroGrad();
      const snapshot = module.namedQuantizations().get("attention")?.snapshotSync();
      expect(snapshot !== undefined).toBe(plainRecipe.kind === "delayed");
      if (!snapshot) continue;
      expectScales("forward", snapshot.forward, scales.forward as Slots);
      expectScales("backward", snapshot.backward, scales.backward as Slots);
    }
  });
});
