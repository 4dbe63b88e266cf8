/** `explainQuantize`, which explains one element of a quantization. */
import { ArgumentError, DTypeError, ShapeError } from "../errors.js";
import { blockedRows, blockFormat, hasGivenScale } from "../formats/block.js";
import { requireTransformable } from "../ops/quantize/quantize.js";
import {
  anything,
  atLeastZero,
  boolean,
  describe,
  finite,
  instance,
  needed,
  nested,
  oneOf,
  optionsOf,
} from "../options.js";
import { checkDraw, type RandomSource } from "../random.js";
import { arrayOf, kindOf } from "../tensor/data.js";
import { requireQuantizable } from "../tensor/geometry.js";
import { DIRECTIONS, type Direction, type QuantizeSpec } from "../tensor/quantized.js";
import { wideDType } from "../tensor/require.js";
import { asMatrix, elementCount, ownShape } from "../tensor/shape.js";
import { requireSpec } from "../tensor/spec.js";
import type { TensorValues } from "./blocks.js";
import { indexIn } from "./coordinates.js";
import type { DialectValues } from "./dequantized.js";
import { QuantizeExplainer, type QuantizeExplanation } from "./quantize.js";

/** Options of `explainQuantize`. Only `spec` and `at` are required. */
export interface ExplainQuantizeOptions {
  /** The `spec` of a quantizer or of a quantized tensor. */
  readonly spec: QuantizeSpec;
  /** The index of the element in the tensor, one number for each dimension. */
  readonly at: readonly number[];
  /** The copy to explain. Default `rowwise`. */
  readonly direction?: Direction | undefined;
  /** The factor of elements. Required for quantizers whose caller sets the scale. */
  readonly scale?: number | undefined;
  /** An amax that replaces the amax of the tensor, for quantizers whose scales depend on it. Default: the amax of the values. */
  readonly amax?: number | undefined;
  /** The random bits of stochastic rounding. Default: seed 0 and offset 0. */
  readonly random?: RandomSource | undefined;
  /** Random bits to use instead of `random`: one word for each element of the copy, in the order of its codes. */
  readonly randomBits?: Uint32Array | undefined;
  /** How a dialect's library dequantizes: `values` of a row of `DIALECTS`. Default: as `dequantize` does in f32. */
  readonly values?: DialectValues | undefined;
}

const USER = "explainQuantize";

const checkValues = optionsOf<TensorValues>({
  data: needed(anything),
  dtype: needed(wideDType),
  shape: needed((_user, _name, value) => ownShape(value as readonly number[])),
});

const checkValueRule = optionsOf<DialectValues>({
  type: needed(oneOf(["source", "bf16", "f32"])),
  typedScale: boolean,
  plusZero: boolean,
  finiteScales: boolean,
});

const checkOptions = optionsOf<ExplainQuantizeOptions>({
  spec: needed((_user, _name, value) => requireSpec(value as QuantizeSpec)),
  at: needed(anything),
  direction: oneOf(DIRECTIONS),
  scale: finite,
  amax: atLeastZero,
  random: nested(checkDraw),
  randomBits: instance(Uint32Array, "a Uint32Array, a word for each element of the copy"),
  values: nested(checkValueRule),
});

/**
 * Explains how a quantizer computes the code of one element of `x`: the amax of its block, each step of the scale, the scaled
 * value, its neighbours in the format, the rounding, and the error (numerics.md §2 to §5). Takes and returns plain data, needs no
 * backend, and agrees with `quantize` in every bit. `x` has the elements as a tensor's `data()` returns them.
 *
 * @throws `ArgumentError` for an element that does not exist, an invalid spec, a missing scale, an amax or a scale that the
 * quantizer does not take, and a columnwise copy whose transform does not take the dtype; `DTypeError` for data that does not
 * match the dtype; `ShapeError` for an invalid shape, a wrong number of elements, and a shape that the format's blocks do not
 * divide.
 */
export function explainQuantize(x: TensorValues, options: ExplainQuantizeOptions): QuantizeExplanation {
  const ownX = checkValues(USER, x, "x");
  const ownOptions = checkOptions(USER, options);
  const { spec, at, direction = "rowwise", scale, amax, random, randomBits, values: rule } = ownOptions;
  const values = requireData(ownX);
  requireTaken(spec, ownOptions);
  if (direction === "columnwise") requireTransformable(USER, spec, ownX.dtype);
  const [, columns] = asMatrix(ownX.shape);
  requireQuantizable(USER, spec, columns);
  const index = indexIn(USER, ownX.shape, at);
  const asF32 = (value: number | undefined) => (value === undefined ? undefined : Math.fround(value));
  const context = { direction, scale: asF32(scale), amax: asF32(amax), random, randomBits, values: rule };
  if (randomBits) requireRandomBits(ownX, spec, direction, randomBits);
  return new QuantizeExplainer(values, spec, context).explain(Math.floor(index / columns), index % columns);
}

/**
 * Throws `ArgumentError` unless the spec rounds stochastically, `ShapeError` unless there is one word for each element of the
 * copy.
 */
function requireRandomBits(
  x: TensorValues,
  spec: QuantizeSpec,
  direction: Direction,
  words: Uint32Array,
): void {
  if (!spec.stochastic)
    throw new ArgumentError(`${USER}: randomBits are for stochastic rounding; leave them out`);
  const [rows, columns] = asMatrix(x.shape);
  const count = (direction === "rowwise" ? rows : blockedRows(spec, rows)) * columns;
  if (words.length !== count)
    throw new ShapeError(
      `${USER}: randomBits has ${words.length} words; the ${direction} copy has ${count} elements, and each takes one`,
    );
}

function requireData(x: TensorValues): TensorValues {
  const { data, dtype, shape } = x;
  const [kind, arrayName] = [kindOf(data), arrayOf(dtype)];
  if (kind !== arrayName) {
    const description = kind ? `a ${kind}` : describe(data);
    throw new DTypeError(
      `${USER}: x.data is ${description}; ${dtype} elements are a ${arrayName}, as data() gives them`,
    );
  }
  if (data.length === elementCount(shape)) return x;
  throw new ShapeError(
    `${USER}: x.data has ${data.length} elements; the shape [${shape}] has ${elementCount(shape)}`,
  );
}

function requireTaken(spec: QuantizeSpec, { scale, amax }: ExplainQuantizeOptions): void {
  const { quantizer } = spec;
  if (hasGivenScale(spec) !== (scale !== undefined)) {
    const what = hasGivenScale(spec) ? "needs a scale; give it" : "takes no scale; leave it out";
    throw new ArgumentError(`${USER}: ${quantizer} ${what}`);
  }
  const { tensorAmax, scaleSource } = blockFormat(quantizer);
  if (amax !== undefined && !tensorAmax && scaleSource !== "whole")
    throw new ArgumentError(`${USER}: ${quantizer} uses no amax of the whole tensor; leave it out`);
  if (amax !== undefined && spec.rowScaled)
    throw new ArgumentError(
      `${USER}: rowScaled has an amax for each row, which cannot be given; leave it out`,
    );
}
