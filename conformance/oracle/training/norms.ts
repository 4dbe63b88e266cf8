/** A model of norms: as a layer, or as the first step of another layer. */

import type { WideName } from "../quantize/quantize.js";
import { norm, normBackward } from "../rows/norm.js";
import { rowsAt, summedRows } from "./divided.js";
import type { LinearInputModel, ParameterModel, Run } from "./linear.js";
import { type Matrix, ofRow, ofRows, rowsOf, sum } from "./matrix.js";
import { fuses } from "./recipes.js";
import { type Passed, type Tape, type Value, wideOf } from "./tape.js";

export interface NormModel {
  readonly gamma: ParameterModel;
  /** Absent for RMSNorm. */
  readonly beta: ParameterModel | undefined;
  readonly eps: number;
  readonly zeroCenteredGamma: boolean;
  /** The number of ranks among which the rows of the input are divided. Default 1. */
  readonly ranks?: number;
}

export function normParametersOf({ gamma, beta }: NormModel): readonly ParameterModel[] {
  return beta ? [gamma, beta] : [gamma];
}

/** The f32 results of a norm over rows, and a function for its gradients. */
function normOf(x: Matrix, { gamma, beta, eps, zeroCenteredGamma, ranks = 1 }: NormModel) {
  const row = (parameter: ParameterModel): number[] => [...parameter.wide.data];
  const form = {
    gamma: row(gamma),
    ...(beta ? { beta: row(beta) } : {}),
    centered: beta !== undefined,
    eps,
    zeroCenteredGamma,
  };
  const rows = rowsOf(x);
  const normed = norm(rows, form);
  const columns = x.shape[1];
  return {
    out: (dtype: WideName): Matrix => ofRows(normed.out, columns, dtype),
    backward: (grad: Matrix): readonly Matrix[] => {
      const { dx, dgamma, dbeta } = normBackward(rowsOf(grad), rows, form, normed);
      if (ranks > 1) {
        const partsOf = (name: "dgamma" | "dbeta", parameter: ParameterModel): Matrix =>
          summedRows(
            grad,
            ranks,
            (part, rank) => {
              const before = rowsOf(rowsAt(x, ranks, rank));
              return ofRow(normBackward(rowsOf(part), before, form, norm(before, form))[name], "f32");
            },
            parameter.wide.dtype,
          );
        const sums = [partsOf("dgamma", gamma), ...(beta ? [partsOf("dbeta", beta)] : [])];
        return [ofRows(dx, columns, x.dtype), ...sums];
      }
      const parameterRow = (parameter: ParameterModel, values: number[]): Matrix =>
        ofRow(values, parameter.wide.dtype);
      return [
        ofRows(dx, columns, x.dtype),
        parameterRow(gamma, dgamma),
        ...(beta ? [parameterRow(beta, dbeta)] : []),
      ];
    },
  };
}

export function normLayer(tape: Tape, x: Value, parts: NormModel): Value {
  const normed = normOf(x.wide, parts);
  const inputs = [x, ...normParametersOf(parts)];
  return tape.one(inputs, normed.out(x.wide.dtype), (grad) => normed.backward(wideOf(grad)));
}

/**
 * A norm followed by a linear layer. If `returned` is true, other layers also use the norm's result, so its rounded result is
 * quantized.
 */
export function normedInput(run: Run, x: Value, parts: NormModel, returned: boolean) {
  const { dtype } = x.wide;
  const normed = normOf(x.wide, parts);
  const computed = run.recipe !== undefined && fuses(run.recipe) && !returned ? "norm" : false;
  const values = computed ? { ...normed.out("f32"), dtype } : normed.out(dtype);
  const input: LinearInputModel = {
    from: { x: values, computed },
    wide: () => normed.out(dtype),
    dtype,
    requiresGrad: [x, ...normParametersOf(parts)].some(({ requiresGrad }) => requiresGrad),
  };
  return {
    input,
    out: normed.out(dtype),
    backward: (ofNormed: Passed | undefined, other: Passed | undefined): readonly (Matrix | undefined)[] => {
      const [first, second] = [ofNormed, other].map((each) => each && wideOf(each));
      const total = first && second ? sum(first, second) : (first ?? second);
      return total ? normed.backward(total) : [];
    },
  };
}
