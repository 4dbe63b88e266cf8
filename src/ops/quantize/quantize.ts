/**
 * Quantization of f32, bf16 and f16 tensors to codes and scales. A quantized tensor has a rowwise copy, a columnwise copy, or
 * both.
 */
import type { MatrixPart } from "../../backends/ops.js";
import { ArgumentError, ShapeError } from "../../errors.js";
import { blockedRows, hasGivenScale } from "../../formats/block.js";
import type { RandomSource } from "../../random.js";
import { DIRECTIONS, type QuantizedTensor, type QuantizeSpec, type Usage } from "../../tensor/quantized.js";
import { optional, requireScalar, requireWide, requireWords } from "../../tensor/require.js";
import { orDispose } from "../../tensor/scope.js";
import { asMatrix, sameShape, type WideDType } from "../../tensor/shape.js";
import type { Tensor } from "../../tensor/tensor.js";
import { NO_RANDOM } from "../cast/cast.js";
import { execute, requireBackendOf } from "../execute.js";
import { HADAMARD_DTYPE } from "./hadamard.js";
import { allocateQuantized, type QuantizedLayout } from "./target.js";

/** The inputs of one quantization other than the tensor and the spec. Tensors are f32 [1]. */
export interface QuantizeInputs {
  /** The random bits. Required if the spec rounds stochastically. */
  readonly random?: RandomSource | undefined;
  /**
   * The position of the source in a larger matrix. If given, random bits are selected by the index in the larger matrix. All
   * of its numbers must be multiples of 16, except the number of rows of a matrix that is not divided along its rows.
   */
  readonly part?: MatrixPart | undefined;
  /**
   * Random bits that replace the bits of `random` and `part`: a u32 for each element of the rowwise copy, in the order of its
   * codes (numerics.md, choice 6). If one copy has random bits, every copy of the result must have them.
   */
  readonly randomBits?: Tensor<"u32"> | undefined;
  /** As `randomBits`, for the columnwise copy. */
  readonly randomBitsColumnwise?: Tensor<"u32"> | undefined;
  /** For fp8-delayed, where it is required: the factor by which elements are multiplied. */
  readonly scale?: Tensor<"f32"> | undefined;
  /** For fp8-delayed: a tensor that is set to the maximum of its value and max |x|. */
  readonly amaxRecord?: Tensor<"f32"> | undefined;
  /** For fp8-current and the rowwise copy of nvfp4: an amax that replaces the amax of the tensor. */
  readonly amax?: Tensor<"f32"> | undefined;
  /** As `amax`, for the columnwise copy of nvfp4. */
  readonly amaxColumnwise?: Tensor<"f32"> | undefined;
  /** A flag, read on the device. If it is exactly 1, the target is not changed. */
  readonly noop?: Tensor<"f32"> | undefined;
}

/**
 * Quantizes `x` into a new tensor. Throws `DTypeError` for an input that is not f32, bf16 or f16, `ShapeError` for a shape that
 * the format does not allow, `ArgumentError` for tensors on different backends or if neither copy is wanted, `UnsupportedError`
 * if the backend does not support the quantization.
 *
 * @shared
 */
export function quantize(x: Tensor, layout: QuantizedLayout, inputs: QuantizeInputs): QuantizedTensor {
  const source = requireWide("quantize", "x", x);
  const checkedInputs = requireInputs("quantize", source, layout, inputs);
  const { backend, shape, dtype } = source;
  return orDispose((allocated) => {
    const target = allocateQuantized(backend, shape, dtype, layout, allocated);
    const { rowwise, columnwise } = target;
    execute(backend, "quantize", { x: source, ...checkedInputs, rowwise, columnwise });
    return target;
  });
}

/**
 * Quantizes `x` into all copies of `target`, an existing quantized tensor. Throws `ShapeError` if the shapes differ, otherwise as
 * `quantize` does.
 *
 * @shared
 */
export function quantizeInto(x: Tensor, target: QuantizedTensor, inputs: QuantizeInputs): void {
  const source = requireWide("quantize", "x", x);
  if (!sameShape(source.shape, target.shape)) {
    throw new ShapeError(`quantize: x is [${x.shape}], the target [${target.shape}]; they must be equal`);
  }
  requireBackendOf("quantize", source, target);
  const { spec, usage, rowwise, columnwise } = target;
  const checkedInputs = requireInputs("quantize", source, { spec, usage }, inputs);
  execute(source.backend, "quantize", { x: source, ...checkedInputs, rowwise, columnwise });
}

/** @shared Throws `ArgumentError` if the spec transforms columnwise data and values of that dtype cannot be transformed. */
export function requireTransformable(op: string, { rht }: QuantizeSpec, dtype: WideDType): void {
  if (rht && dtype !== HADAMARD_DTYPE)
    throw new ArgumentError(
      `${op}: the random Hadamard transform takes ${HADAMARD_DTYPE} input; x is ${dtype}; cast it to ${HADAMARD_DTYPE}`,
    );
}

const optionalScalar = optional(requireScalar);
const optionalWords = optional(requireWords);

/**
 * Checks and returns the arguments of a quantization by the operation `op`, except its source. `values` describes the values that
 * are quantized. Throws as `quantizeInto` does.
 *
 * @shared
 */
export function requireInputs(
  op: string,
  values: Pick<Tensor<WideDType>, "backend" | "dtype" | "shape">,
  { spec, usage }: Pick<QuantizedLayout, "spec"> & { readonly usage: Usage },
  inputs: QuantizeInputs,
) {
  const { random = NO_RANDOM, part, scale, amaxRecord, amax, amaxColumnwise, noop } = inputs;
  const { randomBits, randomBitsColumnwise } = inputs;
  optionalScalar(op, "scale", scale);
  optionalScalar(op, "amaxRecord", amaxRecord);
  optionalScalar(op, "amax", amax);
  optionalScalar(op, "amaxColumnwise", amaxColumnwise);
  optionalScalar(op, "noop", noop);
  requireBackendOf(op, values, scale, amaxRecord, amax, amaxColumnwise, noop);
  if (hasGivenScale(spec) && !scale) {
    throw new ArgumentError(`${op}: ${spec.quantizer} needs a scale tensor, f32 [1]`);
  }
  if (spec.rowScaled && (amax || amaxColumnwise))
    throw new ArgumentError(
      `${op}: rowScaled has an amax for each row, which cannot be given; drop one of the two`,
    );
  if (usage.columnwise) requireTransformable(op, spec, values.dtype);
  if (part && spec.stochastic) requirePart(op, part, asMatrix(values.shape));
  if (randomBits || randomBitsColumnwise) requireRandomBits(op, values, { spec, usage }, inputs);
  const words = { randomBits, randomBitsColumnwise };
  return { spec, random, part, ...words, scale, amaxRecord, amax, amaxColumnwise, noop };
}

/**
 * Throws `ArgumentError` unless the spec rounds stochastically and exactly the copies of the result have random bits,
 * `ShapeError` unless there is a word for each of their elements.
 */
function requireRandomBits(
  op: string,
  values: Pick<Tensor<WideDType>, "backend" | "shape">,
  { spec, usage }: Pick<QuantizedLayout, "spec"> & { readonly usage: Usage },
  inputs: QuantizeInputs,
): void {
  if (!spec.stochastic)
    throw new ArgumentError(
      `${op}: randomBits are for stochastic rounding; this quantizer rounds to nearest; leave them out`,
    );
  const [rows, columns] = asMatrix(values.shape);
  for (const direction of DIRECTIONS) {
    const name = direction === "rowwise" ? "randomBits" : "randomBitsColumnwise";
    const words = optionalWords(op, name, inputs[name]);
    if ((words !== undefined) !== usage[direction])
      throw new ArgumentError(
        `${op}: ${name} are ${words ? "given" : "missing"}, and ${usage[direction] ? "a" : "no"} ${direction} copy is made; each copy has its own`,
      );
    const count = (direction === "rowwise" ? rows : blockedRows(spec, rows)) * columns;
    if (words && words.size !== count)
      throw new ShapeError(
        `${op}: ${name} are [${words.shape}]; the ${direction} copy has ${count} elements, and each takes a word`,
      );
    requireBackendOf(op, values, words);
  }
}

/** @shared The number of elements that share one draw of random bits. */
export const DRAWN_TOGETHER = 16;

/**
 * Throws `ShapeError` unless a matrix of that size lies inside the larger one, and its boundaries inside of it are multiples of
 * 16.
 */
function requirePart(op: string, part: MatrixPart, [rows, columns]: readonly [number, number]): void {
  const { row, column, width, stride } = part;
  const ofLastPiece = column + Math.floor((columns - 1) / width) * stride + ((columns - 1) % width);
  const last = Math.max(ofLastPiece, column + Math.min(columns, width) - 1);
  const isValid = Object.values(part).every((each) => Number.isSafeInteger(each) && each >= 0);
  const fits = row + rows <= part.rows && (columns === 0 || last < part.columns);
  const divided = row === 0 && rows === part.rows ? { ...part, rows: 0 } : part;
  if (
    isValid &&
    width > 0 &&
    fits &&
    Object.values(divided).every((each: number) => each % DRAWN_TOGETHER === 0)
  )
    return;
  throw new ShapeError(
    `${op}: a [${rows}, ${columns}] matrix cannot be the part ${JSON.stringify(part)} of another; columns of both, divided rows, and where pieces begin, are multiples of ${DRAWN_TOGETHER}`,
  );
}
