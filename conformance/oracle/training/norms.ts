/** A model of norms: as a layer, or as the first step of another layer. */

import type { WideName } from "../quantize/quantize.js";
import { norm, normBackward } from "../rows/norm.js";
import { rankRows, summedRows } from "./divided.js";
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

export function normParameters({ gamma, beta }: NormModel): readonly ParameterModel[] {
  return beta ? [gamma, beta] : [gamma];
}

/** The f32 results of a norm over rows, and a function for its gradients. */
function applyNorm(x: Matrix, { gamma, beta, eps, zeroCenteredGamma, ranks = 1 }: NormModel) {
  const row = (parameter: ParameterModel): number[] => [...parameter.wide.data];
  const form = {
    gamma: row(gamma),
    ...(beta ? { beta: row(beta) } : {}),
    centered: beta !== undefined,
    eps,
    zeroCenteredGamma,
  };
  const rows = rowsOf(x);
  const result = norm(rows, form);
  const columns = x.shape[1];
  return {
    out: (dtype: WideName): Matrix => ofRows(result.out, columns, dtype),
    backward: (grad: Matrix): readonly Matrix[] => {
      const { dx, dgamma, dbeta } = normBackward(rowsOf(grad), rows, form, result);
      if (ranks > 1) {
        const gradParts = (name: "dgamma" | "dbeta", parameter: ParameterModel): Matrix =>
          summedRows(
            grad,
            ranks,
            (part, rank) => {
              const previousRows = rowsOf(rankRows(x, ranks, rank));
              return ofRow(
                normBackward(rowsOf(part), previousRows, form, norm(previousRows, form))[name],
                "f32",
              );
            },
            parameter.wide.dtype,
          );
        const sums = [gradParts("dgamma", gamma), ...(beta ? [gradParts("dbeta", beta)] : [])];
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

export function normLayer(tape: Tape, x: Value, normModel: NormModel): Value {
  const result = applyNorm(x.wide, normModel);
  const inputs = [x, ...normParameters(normModel)];
  return tape.one(inputs, result.out(x.wide.dtype), (grad) => result.backward(wideOf(grad)));
}

/**
 * A norm followed by a linear layer. If `isReturned` is true, other layers also use the norm's result, so its rounded result is
 * quantized.
 */
export function normedInput(run: Run, x: Value, normModel: NormModel, isReturned: boolean) {
  const { dtype } = x.wide;
  const result = applyNorm(x.wide, normModel);
  const fusedOperation = run.recipe !== undefined && fuses(run.recipe) && !isReturned ? "norm" : false;
  const values = fusedOperation ? { ...result.out("f32"), dtype } : result.out(dtype);
  const input: LinearInputModel = {
    from: { x: values, computed: fusedOperation },
    wide: () => result.out(dtype),
    dtype,
    requiresGrad: [x, ...normParameters(normModel)].some(({ requiresGrad }) => requiresGrad),
  };
  return {
    input,
    out: result.out(dtype),
    backward: (
      normGrad: Passed | undefined,
      returnedGrad: Passed | undefined,
    ): readonly (Matrix | undefined)[] => {
      const [first, second] = [normGrad, returnedGrad].map((each) => each && wideOf(each));
      const total = first && second ? sum(first, second) : (first ?? second);
      return total ? result.backward(total) : [];
    },
  };
}
