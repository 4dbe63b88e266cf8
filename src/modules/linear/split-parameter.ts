/** A weight or a bias whose rows are several parameters (`parametersSplit`). */
import { ArgumentError, ShapeError } from "../../errors.js";
import { type Domain, describe, integer, isArray, membersOfPlain, ownList } from "../../options.js";
import { wideOf } from "../../tape/value.js";
import { QuantizedTensor } from "../../tensor/quantized.js";
import type { Owned } from "../../tensor/scope.js";
import { byteLength, elementCount, type WideDType } from "../../tensor/shape.js";
import { type Tensor, VIEW_ALIGNMENT, viewOrSlice } from "../../tensor/tensor.js";
import { snakeCase } from "../../text/snake-case.js";
import { Parameter } from "../parameter.js";
import type { TensorParallel } from "../tensor-parallel/tensor-parallel.js";
import { divideBias, divideWeight } from "../tensor-parallel/weights.js";

/** The option `parametersSplit`: names of parameters with equal numbers of rows, or with the number of rows of each. */
export type ParametersSplit = readonly string[] | Readonly<Record<string, number>>;

/** The parameters of a weight, in order. */
export type SplitRows = readonly (readonly [name: string, rows: number])[];

const NAME = /^[a-z][A-Za-z0-9_]*$/;
const rowCount = integer(1);

/** Checks the option `parametersSplit` and returns a copy, in which names have no underscores at their ends. */
export const parametersSplit: Domain = (caller, name, value) => {
  const isList = isArray(value);
  const pairs = isList
    ? ownList(caller, name, value, (each) => [each, 1] as const)
    : membersOfPlain(caller, name, value);
  if (!pairs || pairs.length === 0)
    throw new ArgumentError(
      `${caller}: ${name} is ${describe(value)}; give names of parameters, or an object from names to numbers of rows`,
    );
  const namedRows = pairs.map(([key, rows]) => {
    const stem = typeof key === "string" ? key.replace(/_+$/, "") : "";
    if (!NAME.test(stem))
      throw new ArgumentError(
        `${caller}: ${name} has the name ${describe(key)}; a name begins with a small letter and has letters, digits and underscores`,
      );
    return [stem, rowCount(caller, `${name}.${stem}`, rows) as number] as const;
  });
  const names = namedRows.map(([stem]) => snakeCase(stem));
  const repeatedName = names.find((each, i) => names.indexOf(each) < i);
  if (repeatedName)
    throw new ArgumentError(`${caller}: ${name} has the name "${repeatedName}" twice; give each once`);
  return isList ? namedRows.map(([stem]) => stem) : Object.fromEntries(namedRows);
};

/**
 * Returns the number of rows of each parameter of a weight with `outFeatures` rows. Throws `ShapeError` if the sum of these
 * numbers is not `outFeatures`, or if rows cannot be divided evenly.
 */
export function splitRows(caller: string, split: ParametersSplit, outFeatures: number): SplitRows {
  if (isArray(split)) {
    if (outFeatures % split.length !== 0)
      throw new ShapeError(
        `${caller}: outFeatures ${outFeatures} is not divisible by the ${split.length} names of parametersSplit; give an object with the number of rows of each`,
      );
    return split.map((name) => [name, outFeatures / split.length]);
  }
  const rows = Object.entries(split);
  const sum = rows.reduce((total, [, count]) => total + count, 0);
  if (sum === outFeatures) return rows;
  throw new ShapeError(
    `${caller}: parametersSplit has ${sum} rows; they must add up to outFeatures, ${outFeatures}`,
  );
}

/**
 * A parameter that no module registers. Its rows, or elements, are the registered parameters `parts`, one after the other. The
 * parts share its memory, except parts that cannot be views; `value` copies these again.
 */
export class SplitParameter extends Parameter {
  readonly parts: readonly Parameter[];
  /** The parts with memory of their own, and the index of their first element. */
  readonly #copies: readonly (readonly [part: Parameter, first: number])[];

  /** `value` is the tensor of all rows. The parts are added to `created`. */
  constructor(value: Tensor<WideDType>, counts: readonly number[], created: Owned[]) {
    super(value);
    const [, ...rest] = value.shape;
    const rowSize = elementCount(rest);
    const copies: (readonly [Parameter, number])[] = [];
    let row = 0;
    this.parts = counts.map((count) => {
      const start = row * rowSize;
      const part = new Parameter(viewOrSlice(value, start, [count, ...rest]));
      part.isSplitPart = true;
      created.push(part);
      if (byteLength(value.dtype, [start]) % VIEW_ALIGNMENT !== 0) copies.push([part, start]);
      row += count;
      return part;
    });
    this.#copies = copies;
  }

  override get value(): Parameter["value"] {
    const value = super.value as Tensor;
    for (const [part, start] of this.#copies) value.paste(part.value as Tensor, start);
    return value;
  }

  /** Reads the parts, and whether any of them requires a gradient. Call it before a forward pass. */
  update(): void {
    void this.value;
    this.requiresGrad = this.parts.some(({ requiresGrad }) => requiresGrad);
  }

  override dispose(): void {
    for (const part of this.parts) part.dispose();
    this.localValue.dispose();
  }

  /** Returns the gradient of each part: rows of `grad`, the gradient of all rows. */
  gradientsOf(grad: Tensor<WideDType> | undefined): readonly (Tensor<WideDType> | undefined)[] {
    let start = 0;
    return this.parts.map(({ shape }) => {
      const part = grad && viewOrSlice(grad, start, shape);
      start += elementCount(shape);
      return part;
    });
  }
}

/** How the parameters of a layer are divided. */
interface SplitOptions {
  /** The name of the layer for messages. */
  readonly caller: string;
  /** The parameters, with the rows of all ranks. */
  readonly rows: SplitRows;
  /** How the layer is divided among ranks. Undefined if it is not divided. */
  readonly parallel: TensorParallel | undefined;
}

/**
 * Throws `ArgumentError` if a layer that ranks divide by rows does not divide the rows of each parameter: `pieces` must be their
 * number, and they must have equal numbers of rows.
 */
export function requirePieces({ caller, rows, parallel }: SplitOptions): void {
  if (parallel?.mode !== "column") return;
  if (parallel.pieces === rows.length && rows.every(([, count]) => count === rows[0]?.[1])) return;
  throw new ArgumentError(
    `${caller}: parametersSplit has ${rows.length} parameters and pieces is ${parallel.pieces}; with parallelMode "column" give pieces: ${rows.length} and equal numbers of rows, so that each rank has rows of each parameter`,
  );
}

/**
 * Replaces the weight and the bias of a layer by parameters of their rows, which are added to `created`. `weight` is this rank's
 * part of the weight [N, inFeatures].
 */
export function splitLayer(
  { weight, bias }: { readonly weight: Parameter; readonly bias: Parameter | undefined },
  inFeatures: number,
  { rows, parallel, caller }: SplitOptions,
  created: Owned[],
): { readonly weight: SplitParameter; readonly bias: SplitParameter | undefined } {
  const { localValue } = weight;
  if (localValue instanceof QuantizedTensor)
    throw new ArgumentError(
      `${caller}: parametersSplit divides the weight into tensors, and quantizedModelInit quantizes it as one; leave one of them out`,
    );
  const ranks = parallel?.mode === "column" ? parallel.group.size : 1;
  const counts = rows.map(([, count]) => count / ranks);
  const wide = (parameter: Parameter): Tensor<WideDType> => wideOf(caller, parameter.localValue);
  const weights = new SplitParameter(wide(weight), counts, created);
  const biases = bias && new SplitParameter(wide(bias), counts, created);
  if (parallel)
    for (const [i, part] of weights.parts.entries()) {
      const [, count] = rows[i] as SplitRows[number];
      divideWeight(part, { ...groupAndMode(parallel), pieces: 1 }, [count, inFeatures]);
      const ofBias = biases?.parts[i];
      if (ofBias && parallel.mode === "column") divideBias(ofBias, part);
    }
  return { weight: weights, bias: biases };
}

const groupAndMode = ({ group, mode }: TensorParallel) => ({ group, mode });

/** The parameters that a layer registers, with their names. */
export function namedLeaves({
  weight,
  bias,
  rows,
}: {
  readonly weight: Parameter;
  readonly bias?: Parameter | undefined;
  readonly rows?: SplitRows | undefined;
}): readonly (readonly [name: string, parameter: Parameter])[] {
  const nameOfPart = (parameter: Parameter | undefined, suffix: string) =>
    leavesOf(parameter).map((leaf, i) => {
      const stem = rows?.[i]?.[0];
      return [stem === undefined ? suffix.toLowerCase() : `${stem}${suffix}`, leaf] as const;
    });
  return [...nameOfPart(weight, "Weight"), ...nameOfPart(bias, "Bias")];
}

/** Reads the parts of a weight and a bias before a forward pass. */
export function updateSplit(...parameters: readonly (Parameter | undefined)[]): void {
  for (const parameter of parameters) if (parameter instanceof SplitParameter) parameter.update();
}

/** The registered parameters of a weight or a bias. */
export function leavesOf(parameter: Parameter | undefined): readonly Parameter[] {
  if (!parameter) return [];
  return parameter instanceof SplitParameter ? parameter.parts : [parameter];
}

/** The gradients of `leavesOf(parameter)`, from the gradient of `parameter`. */
export function leafGradients(
  parameter: Parameter | undefined,
  grad: Tensor<WideDType> | undefined,
): readonly (Tensor<WideDType> | undefined)[] {
  if (!parameter) return [];
  return parameter instanceof SplitParameter ? parameter.gradientsOf(grad) : [grad];
}
