/** The tensors of a checkpoint: the name of each in the file, and the tensor in memory. */
import { ArgumentError } from "../errors.js";
import type { Module } from "../modules/module.js";
import type { Parameter } from "../modules/parameter.js";
import { isStateScale, type Optimizer } from "../optimizers/optimizer.js";
import { type CopyTensors, DIRECTIONS, QuantizedTensor } from "../tensor/quantized.js";
import type { Tensor } from "../tensor/tensor.js";
import { type FileDType, fileDType, isPackedInFiles } from "./dtypes.js";
import type { Metadata } from "./header/header.js";
import { type FileTensor, memberTensors } from "./quantized/quantized-file.js";
import { formatRecipe, recipeKey, recipeOf } from "./quantized/recipe.js";

export type { FileTensor as TensorPlace };

/** The prefix of the names of parameters. */
export const MODULE = "module.";

const FIELDS = ["data", "scaleInv", "amax"] as const satisfies readonly (keyof CopyTensors)[];

/**
 * The description of a tensor in a file of version 1. That version stored codes of quantized parameters in their own types, and
 * 6-bit codes in one byte each.
 */
function fileTensor(name: string, tensor: Tensor): FileTensor {
  const { dtype, shape } = tensor;
  const type: FileDType = isPackedInFiles(dtype) ? "U8" : fileDType(dtype);
  return { name, dtype: type, shape, tensor };
}

/** A tensor of a parameter or of its optimizer. */
export interface ParameterTensor extends FileTensor {
  readonly parameter: Parameter;
  /** The name of the parameter, or of the tensor of the optimizer. */
  readonly subject: string;
  /** Whether every rank has all of it even if the parameter is divided: the scale of a state. */
  readonly isWhole?: boolean;
}

/** Maps the name of a parameter in a module or an optimizer to its name in the file. */
export type NameOf = (name: string) => string;

const same: NameOf = (name) => name;

/**
 * The tensors of the parameters: `module.NAME` for a plain parameter. A quantized parameter has several tensors, named as
 * `saveTensors` names them.
 */
export function parameterTensors(module: Module, nameOf = same): readonly ParameterTensor[] {
  return [...module.namedParameters()].flatMap(([parameterName, parameter]) => {
    const { value } = parameter;
    const name = MODULE + nameOf(parameterName);
    const tensors = value instanceof QuantizedTensor ? memberTensors(name, value) : [fileTensor(name, value)];
    return tensors.map((each) => ({ ...each, parameter, subject: name }));
  });
}

/** As `parameterTensors`, for a file of version 1. */
export function version1ParameterTensors(module: Module): readonly FileTensor[] {
  return [...module.namedParameters()].flatMap(([parameter, { value }]) => {
    const name = MODULE + parameter;
    if (!(value instanceof QuantizedTensor)) return [fileTensor(name, value)];
    return DIRECTIONS.flatMap((direction) => {
      const copy: Partial<CopyTensors> = value[direction] ?? {};
      return FIELDS.flatMap((field) => {
        const member = copy[field];
        return member ? [fileTensor(`${name}.${direction}.${field}`, member)] : [];
      });
    });
  });
}

/** The metadata of quantized parameters. */
export function parameterMetadata(module: Module): Metadata {
  const entries = [...quantizedParameters(module)].map(
    ([name, value]) => [recipeKey(MODULE + name), formatRecipe(recipeOf(value))] as const,
  );
  return Object.fromEntries(entries);
}

/** The quantized parameters of a module. */
export function quantizedParameters(module: Module): ReadonlyMap<string, QuantizedTensor> {
  const quantized = ([name, { value }]: readonly [string, Parameter]) =>
    value instanceof QuantizedTensor ? [[name, value] as const] : [];
  return new Map([...module.namedParameters()].flatMap(quantized));
}

/**
 * The tensors of the optimizer: `optimizer.NAME.master`, unless the parameter itself is the master, and `optimizer.NAME.m` (or
 * `.v`, `.m.scale`) for each buffer. Throws `ArgumentError` if a parameter does not belong to the module.
 */
export function optimizerTensors(
  module: Module,
  optimizer: Optimizer,
  nameOf = same,
): readonly ParameterTensor[] {
  const moduleParameters = new Set(module.parameters());
  return [...optimizer.slots].flatMap(([name, { parameter, master, buffers }]) => {
    if (!moduleParameters.has(parameter))
      throw new ArgumentError(
        `checkpoint: the optimizer updates "${name}", which is not a parameter of the module; give the module that has all of them`,
      );
    const tensors = [...(master === parameter.value ? [] : [["master", master] as const]), ...buffers];
    return tensors.map(([buffer, tensor]) => {
      const subject = `optimizer.${nameOf(name)}.${buffer}`;
      return { ...fileTensor(subject, tensor), parameter, subject, isWhole: isStateScale(buffer) };
    });
  });
}
