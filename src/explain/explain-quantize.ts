/** The public function that explains one element of a quantization. */
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
  /** The settings of the quantization: `spec` of a quantizer or of a quantized tensor. */
  readonly spec: QuantizeSpec;
  /** The index of the element in the tensor, one number for each dimension. */
  readonly at: readonly number[];
  /** The copy to explain. Default `rowwise`. */
  readonly direction?: Direction | undefined;
  /** For quantizers with a given scale, which need it: the factor of elements. */
  readonly scale?: number | undefined;
  /** For quantizers that use the amax of the whole tensor: the amax to use instead. Default: that of the values. */
  readonly amax?: number | undefined;
  /** The random bits of stochastic rounding. Default: seed 0 and offset 0. */
  readonly random?: RandomSource | undefined;
  /** The random bits that were given instead: a word for each element of the copy, in the order of its codes. */
  readonly randomBits?: Uint32Array | undefined;
  /** How a dialect's library computes values: `values` of a row of `DIALECTS`. Default: as `dequantize` does in f32. */
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
 * Explains how a quantizer makes the code of one element of `x`: the amax of its block, each step of the scale, the scaled
 * value, its neighbours in the format, the rounding, and the error (numerics.md §2 to §5). It takes and returns plain data, needs
 * no backend, and agrees with `quantize` in every bit. `x` has the elements as `data()` of a tensor gives them.
 *
 * @throws `ArgumentError` for an element that does not exist, an invalid spec, a missing scale, or an amax or a scale that the
 * quantizer does not take.
 * @throws `DTypeError` for data of another kind than the dtype has, or a dtype that the transform does not take;
 * `ShapeError` for an invalid
 * shape, another number of elements, or a shape that the format's blocks do not divide.
 */
export function explainQuantize(x: TensorValues, options: ExplainQuantizeOptions): QuantizeExplanation {
  const ownX = checkValues(USER, x, "x");
  const ownOptions = checkOptions(USER, options);
  const { spec, at, direction = "rowwise", scale, amax, random, randomBits, values: rule } = ownOptions;
  const values = requireData(ownX);
  requireTaken(spec, ownOptions);
  requireTransformable(USER, spec, ownX.dtype);
  const [, columns] = asMatrix(ownX.shape);
  requireQuantizable(USER, spec, columns);
  const index = indexIn(USER, ownX.shape, at);
  const given = (value: number | undefined) => (value === undefined ? undefined : Math.fround(value));
  const context = { direction, scale: given(scale), amax: given(amax), random, randomBits, values: rule };
  if (randomBits) requireRandomBits(ownX, spec, direction, randomBits);
  return new QuantizeExplainer(values, spec, context).explain(Math.floor(index / columns), index % columns);
}

/** Throws `ArgumentError` unless the spec rounds stochastically, `ShapeError` unless each element of the copy has a word. */
function requireRandomBits(
  x: TensorValues,
  spec: QuantizeSpec,
  direction: Direction,
  given: Uint32Array,
): void {
  if (!spec.stochastic)
    throw new ArgumentError(`${USER}: randomBits are for stochastic rounding; leave them out`);
  const [rows, columns] = asMatrix(x.shape);
  const count = (direction === "rowwise" ? rows : blockedRows(spec, rows)) * columns;
  if (given.length !== count)
    throw new ShapeError(
      `${USER}: randomBits has ${given.length} words; the ${direction} copy has ${count} elements, and each takes one`,
    );
}

function requireData(x: TensorValues): TensorValues {
  const { data, dtype, shape } = x;
  const [kind, wanted] = [kindOf(data), arrayOf(dtype)];
  if (kind !== wanted) {
    const given = kind ? `a ${kind}` : describe(data);
    throw new DTypeError(
      `${USER}: x.data is ${given}; ${dtype} elements are a ${wanted}, as data() gives them`,
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
