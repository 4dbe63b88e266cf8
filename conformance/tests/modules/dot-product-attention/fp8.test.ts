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
  withAllowedOptions,
} from "./fp8-case.js";

const backend = useBackend({ threads: 1, datapath: "hopper" });

let state = 1;
const draw = (bound: number): number => {
  state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
  return (state >>> 8) % bound;
};

const CASES = pairwise(TABLE, draw).map(withAllowedOptions);

/** Throws unless all numbers have the same bits. */
function expectNumbers(name: string, actual: ArrayLike<number>, expected: ArrayLike<number>): void {
  expect(actual.length, name).toBe(expected.length);
  const mismatch = Array.from(expected).findIndex((value, i) => !Object.is(actual[i], value));
  if (mismatch >= 0)
    throw new Error(
      `${name}[${mismatch}] is ${actual[mismatch]}; in plain numbers it is ${expected[mismatch]}`,
    );
}

/** [B * Sq, H * V] of one head after the other, [B * H * Sq, V]. */
function joinHeads({ data, dtype }: Matrix, rows: number, width: number): Matrix {
  const joinedValues = new Float32Array(data.length);
  for (let index = 0; index < data.length; index++) {
    const [dimension, i] = [index % width, Math.floor(index / width) % rows];
    const [head, b] = [
      Math.floor(index / (width * rows)) % HEADS,
      Math.floor(index / (width * rows * HEADS)),
    ];
    joinedValues[((b * rows + i) * HEADS + head) * width + dimension] = data[index] as number;
  }
  return { data: joinedValues, shape: [BATCH * rows, HEADS * width], dtype };
}

/** The inverse of `joinHeads`. */
function splitHeads({ data, dtype }: Matrix, rows: number, width: number): Matrix {
  const headValues = new Float32Array(data.length);
  for (let index = 0; index < data.length; index++) {
    const [dimension, head] = [index % width, Math.floor(index / width) % HEADS];
    const [i, b] = [Math.floor(index / (width * HEADS)) % rows, Math.floor(index / (width * HEADS * rows))];
    headValues[((b * HEADS + head) * rows + i) * width + dimension] = data[index] as number;
  }
  return { data: headValues, shape: [BATCH * HEADS * rows, width], dtype };
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
    (attentionCase) =>
      [
        `${attentionCase.recipe}, ${attentionCase.mask}, ${attentionCase.format}, ${attentionCase.bias}, ${attentionCase.softmaxType}, ${attentionCase.dtype}`,
        attentionCase,
      ] as const,
  );
  it.each(sampleCases(titled, 20))("%s", (_name, attentionCase: Case) => {
    using _scope = new Scope();
    const { options, call, bias, task } = argumentsOf(backend(), attentionCase);
    const random = new RandomState(SEED);
    using module = new DotProductAttention(backend(), HEADS, attentionCase.widths, { ...options, random });
    const offset = module.softmaxOffset;
    offset?.tensor.paste(waves(backend(), 5, [1, HEADS, 1, 1], "f32"), 0);
    const logits =
      attentionCase.softmaxType === "learnable" ? waves(backend(), 5, [HEADS], "f32") : undefined;
    const [make, plainRecipe] = RECIPES[attentionCase.recipe];
    const [recipe, scales] = [make(), new AttentionScales(plainRecipe)];
    for (let step = 0; step < (plainRecipe.kind === "delayed" ? 3 : 1); step++) {
      random.offset = 4n;
      const inputs = (["q", "k", "v"] as const).map((operand, i) => {
        const shape = rowsOf(attentionCase, operand).shape(
          headsOf(attentionCase, operand),
          widthOf(attentionCase, operand),
        );
        return new Variable(waves(backend(), 10 * step + i + 1, shape, attentionCase.dtype), true);
      }) as [Variable, Variable, Variable];
      const out = autocast({ recipe }, () => module.forward(...inputs, call));
      const [q, k, v] = (["q", "k", "v"] as const).map((operand, i) =>
        byHead(inputs[i]?.tensor as Tensor, rowsOf(attentionCase, operand), [
          headsOf(attentionCase, operand),
          widthOf(attentionCase, operand),
        ]),
      ) as [Matrix, Matrix, Matrix];
      const zeros = Array.from({ length: HEADS }, () => 0);
      const sinks =
        attentionCase.softmaxType === "vanilla" ? undefined : logits ? [...valuesIn(logits)] : zeros;
      const expected = quantizedAttention({ ...task, q, k, v, sinks }, scales.rounding());
      const [rows, width] = [rowsOf(attentionCase, "q"), widthOf(attentionCase, "v")];
      const plainOut = splitHeads(expected.out, rows.length, width);
      expectNumbers(`result of step ${step}`, valuesIn(out.tensor), byRow(plainOut, rows, [HEADS, width]));
      scales.forward?.update();

      const grad = waves(backend(), 10 * step + 6, out.shape, attentionCase.dtype);
      out.backward(grad);
      const dout = joinHeads(byHead(grad, rows, [HEADS, width]), rows.length, width);
      const gradValues = valuesIn(grad);
      const columns = HEADS * width;
      const grads = expected.backward(dout, {
        ...dout,
        data: gradValues,
        shape: [gradValues.length / columns, columns],
      });
      scales.backward?.update();
      for (const [i, operand] of (["q", "k", "v"] as const).entries()) {
        const sizes = [headsOf(attentionCase, operand), widthOf(attentionCase, operand)] as const;
        const plainGrad = byRow(
          [grads.dq, grads.dk, grads.dv][i] as Matrix,
          rowsOf(attentionCase, operand),
          sizes,
        );
        expectNumbers(
          `gradient of ${operand} in step ${step}`,
          valuesIn(inputs[i]?.grad as Tensor),
          plainGrad,
        );
      }
      if (bias) {
        const biasGrad = valuesIn(bias.grad as Tensor);
        const plainGrad = (grads.dbias as number[]).map((x) => roundedIn(x, attentionCase.dtype));
        expectNumbers(`gradient of the bias in step ${step}`, biasGrad, plainGrad);
      }
      if (offset)
        expectNumbers(
          `gradient of the sinks in step ${step}`,
          valuesIn(offset.grad as Tensor),
          grads.dsinks as number[],
        );
      for (const variable of [...inputs, bias, offset]) variable?.zeroGrad();
      const snapshot = module.namedQuantizations().get("attention")?.snapshotSync();
      expect(snapshot !== undefined).toBe(plainRecipe.kind === "delayed");
      if (!snapshot) continue;
      expectScales("forward", snapshot.forward, scales.forward as Slots);
      expectScales("backward", snapshot.backward, scales.backward as Slots);
    }
  });
});
