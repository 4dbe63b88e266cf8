/** Rows of elementwise operators. */
import * as activations from "../activations.js";
import * as arithmetic from "../arithmetic.js";
import type { Model } from "../call.js";
import * as elementwise from "../elementwise.js";
import { atan2, erfc, hypot, log10 } from "../erfc-atan2-hypot.js";
import * as functions from "../log1p-expm1.js";
import { mathModel, unaryModel, unaryOperation } from "../pointwise.js";
import * as powers from "../powers.js";
import { computeRow, type OperatorRow, type OperatorRows, withInPlaceVariant, withWitness } from "./row.js";

/** The row of an operator that the recorded calls in torch-operators/elementwise.json confirmed. */
function comparedRow(parameters: string, definition: string, model: Model): OperatorRow {
  const inputs = "5,099 elements in f32, bf16 and f16 each, with special numbers";
  return withWitness(computeRow(parameters, definition, model), inputs);
}

/** The row of an operator and of its in-place variant. */
const comparedInPlaceRow = (...row: Parameters<typeof comparedRow>): OperatorRow =>
  withInPlaceVariant(comparedRow(...row));

/** The row of an operator that is a math function of CUDA. */
function mathRow(name: Parameters<typeof mathModel>[0]): OperatorRow {
  return comparedInPlaceRow("self", `${name} of CUDA in f32`, mathModel(name));
}

const comparisonRow = (sign: string, predicate: (x: number, y: number) => boolean): OperatorRow =>
  comparedRow("self other", `self ${sign} other`, elementwise.comparisonModel(predicate));

const COMPARISONS = {
  eq: comparisonRow("==", (x, y) => x === y),
  ne: comparisonRow("!=", (x, y) => x !== y),
  lt: comparisonRow("<", (x, y) => x < y),
  le: comparisonRow("<=", (x, y) => x <= y),
  gt: comparisonRow(">", (x, y) => x > y),
  ge: comparisonRow(">=", (x, y) => x >= y),
} as const;

/** Gives each operator a row for the overload with a tensor, and one for the overload with a number. */
function overloads(rows: Readonly<Record<string, OperatorRow>>): OperatorRows {
  return Object.fromEntries(
    Object.entries(rows).flatMap(([name, row]) =>
      ["Tensor", "Scalar"].map((overload) => [`aten::${name}.${overload}`, row]),
    ),
  );
}

const ARITHMETIC = overloads({
  add: comparedInPlaceRow("self other alpha", "fma(other, alpha, self), rounded once", arithmetic.add),
  sub: comparedInPlaceRow("self other alpha", "fma(other, -alpha, self), rounded once", arithmetic.subtract),
  rsub: comparedRow("self other alpha", "fma(self, -alpha, other), rounded once", arithmetic.reverseSubtract),
  mul: comparedInPlaceRow("self other", "self * other in f32, rounded once", arithmetic.multiply),
  div: comparedInPlaceRow(
    "self other",
    "self / other in f32, rounded once; a number's reciprocal is rounded to f32 first",
    arithmetic.divide,
  ),
  copysign: comparedInPlaceRow("self other", "self with the sign of other", arithmetic.copySign),
  fmod: comparedInPlaceRow(
    "self other",
    "the exact remainder with the sign of self; a number is rounded to the dtype first",
    arithmetic.binaryModelInDType((x, y) => x % y),
  ),
  remainder: comparedInPlaceRow(
    "self other",
    "fmod, plus other if the signs differ; a number is rounded to the dtype first",
    arithmetic.binaryModelInDType(arithmetic.floorRemainder),
  ),
  ...COMPARISONS,
});

const LERP = comparedInPlaceRow(
  "self end weight",
  "fma(weight, end - self, self), or from end if |weight| is 1/2 or more; rounded once",
  arithmetic.lerp,
);

/** Rows of formulas of several tensors. */
const FORMULAS: OperatorRows = {
  "aten::lerp.Scalar": LERP,
  "aten::lerp.Tensor": LERP,
  "aten::addcmul": comparedInPlaceRow(
    "self tensor1 tensor2",
    "fma(value, tensor1 * tensor2, self), or fma(tensor1, tensor2, self) if value is 1; rounded once",
    arithmetic.addcmulOrAddcdiv("product"),
  ),
  "aten::addcdiv": comparedInPlaceRow(
    "self tensor1 tensor2",
    "fma(value, tensor1 / tensor2, self), rounded once",
    arithmetic.addcmulOrAddcdiv("quotient"),
  ),
  "aten::clamp": comparedInPlaceRow("self min max", "self within two numbers; NaN stays", arithmetic.clamp),
  "aten::clamp_min": comparedInPlaceRow("self min", "self or a larger number; NaN stays", arithmetic.clamp),
  "aten::maximum": comparedRow("self other", "the larger one, or NaN", arithmetic.binaryOperation(Math.max)),
  "aten::minimum": comparedRow("self other", "the smaller one, or NaN", arithmetic.binaryOperation(Math.min)),
  "aten::fmax": comparedRow(
    "self other",
    "the larger one that is not NaN",
    arithmetic.binaryOperation(arithmetic.withoutNaN(Math.max)),
  ),
  "aten::fmin": comparedRow(
    "self other",
    "the smaller one that is not NaN",
    arithmetic.binaryOperation(arithmetic.withoutNaN(Math.min)),
  ),
  "aten::atan2": comparedInPlaceRow("self other", "atan2f of CUDA in f32", arithmetic.binaryModel(atan2)),
  "aten::hypot": comparedInPlaceRow("self other", "hypotf of CUDA in f32", arithmetic.binaryModel(hypot)),
  "aten::pow.Tensor_Scalar": comparedInPlaceRow(
    "self exponent",
    "powf; ones, self, sqrtf, rsqrtf, products or quotients for some exponents",
    powers.power,
  ),
  "aten::pow.Scalar": comparedRow(
    "self exponent",
    "powf of a number rounded to the dtype",
    powers.powerOfNumber,
  ),
  "aten::pow.Tensor_Tensor": comparedInPlaceRow(
    "self exponent",
    "powf of two tensors",
    powers.powerOfTensors,
  ),
};

const SIGN = comparedInPlaceRow("self", "1, 0 or -1; NaN gives 0", unaryOperation(arithmetic.sign));

/** Rows of functions of one tensor. */
const FUNCTIONS: OperatorRows = {
  "aten::neg": comparedInPlaceRow("self", "the other sign", elementwise.negate),
  "aten::abs": comparedInPlaceRow("self", "the positive sign", elementwise.absolute),
  "aten::floor": comparedInPlaceRow("self", "rounded down to an integer", unaryOperation(Math.floor)),
  "aten::ceil": comparedInPlaceRow("self", "rounded up to an integer", unaryOperation(Math.ceil)),
  "aten::trunc": comparedInPlaceRow("self", "rounded toward zero to an integer", unaryOperation(Math.trunc)),
  "aten::round": comparedInPlaceRow(
    "self",
    "rounded to the nearest integer, ties to even",
    unaryOperation(arithmetic.roundToInteger),
  ),
  "aten::frac": comparedInPlaceRow(
    "self",
    "self less its integer part",
    unaryOperation((x) => x - Math.trunc(x)),
  ),
  "aten::sign": SIGN,
  "aten::sgn": SIGN,
  "aten::square": comparedInPlaceRow(
    "self",
    "self * self, rounded once",
    unaryOperation((x) => x * x),
  ),
  "aten::isnan": comparedRow("self", "whether it is NaN", elementwise.conditionModel(Number.isNaN)),
  "aten::logical_not": comparedRow(
    "self",
    "whether it is zero",
    elementwise.conditionModel((x) => x === 0),
  ),
  "aten::reciprocal": comparedInPlaceRow(
    "self",
    "1 / self in f32, rounded once",
    unaryOperation((x) => 1 / x),
  ),
  "aten::exp": mathRow("expf"),
  "aten::log": mathRow("logf"),
  "aten::exp2": mathRow("exp2f"),
  "aten::log2": mathRow("log2f"),
  "aten::log10": comparedInPlaceRow("self", "logf(self) * log10 e in f32", log10),
  "aten::sqrt": mathRow("sqrtf"),
  "aten::rsqrt": mathRow("rsqrtf"),
  "aten::tanh": mathRow("tanhf"),
  "aten::erf": mathRow("erff"),
  "aten::erfc": comparedInPlaceRow("self", "erfcf of CUDA in f32", erfc),
  "aten::expm1": comparedInPlaceRow("self", "expm1f of CUDA in f32", unaryModel(functions.expm1)),
  "aten::log1p": comparedInPlaceRow("self", "log1pf of CUDA in f32", unaryModel(functions.log1p)),
  "aten::sin": mathRow("sinf"),
  "aten::cos": mathRow("cosf"),
};

/** Rows of activation functions and their gradients. */
const ACTIVATIONS: OperatorRows = {
  "aten::relu": comparedInPlaceRow("self", "+0 where self is at most 0, else self", elementwise.relu),
  "aten::threshold_backward": comparedRow(
    "grad_output self threshold",
    "+0 where self is at most the threshold, else grad_output",
    elementwise.thresholdBackward,
  ),
  "aten::silu": comparedInPlaceRow(
    "self",
    "self / (1 + expf(-self)) in f32, each step rounded",
    activations.silu,
  ),
  "aten::silu_backward": comparedRow(
    "grad_output self",
    "grad * s * fma(self, 1 - s, 1) in f32, each step rounded; s is the sigmoid",
    activations.siluBackward,
  ),
  "aten::sigmoid": comparedInPlaceRow(
    "self",
    "1 / (1 + expf(-self)) in f32, each step rounded",
    activations.sigmoid,
  ),
  "aten::sigmoid_backward": comparedRow(
    "grad_output output",
    "grad * (1 - output) * output, each step rounded to the dtype",
    activations.sigmoidBackward,
  ),
  "aten::tanh_backward": comparedRow(
    "grad_output output",
    "grad * fma(-output, output, 1); in 16 bits each step rounded to the dtype",
    activations.tanhBackward,
  ),
  "aten::gelu": comparedInPlaceRow(
    "self",
    "self / 2 * (1 + t) in f32, each step rounded; t is erff(self * 0.5^0.5), or tanhf(b * fma(k, self^3, self))",
    activations.gelu,
  ),
  "aten::gelu_backward": comparedRow(
    "grad_output self",
    "grad * fma(1 + t, 1/2, u) in f32, each step rounded; u is self times the density, or the derivative by tanhf",
    activations.geluBackward,
  ),
  "aten::hardswish": comparedInPlaceRow(
    "self",
    "self * min(max(self + 3, 0), 6) * (1/6)",
    activations.hardswish,
  ),
  "aten::hardsigmoid": comparedInPlaceRow(
    "self",
    "min(max(self + 3, 0), 6) * (1/6)",
    activations.hardsigmoid,
  ),
  "aten::leaky_relu": comparedInPlaceRow(
    "self negative_slope",
    "self, or self * negative_slope if it is not positive",
    activations.leakyRelu,
  ),
  "aten::softplus": comparedInPlaceRow(
    "self beta threshold",
    "log1pf(expf(self * beta)) / beta, or self where self * beta is above the threshold",
    functions.softplus,
  ),
  "aten::mish": comparedInPlaceRow("self", "self * tanhf(log1pf(expf(self)))", functions.mish),
  "aten::log_sigmoid_forward": comparedRow(
    "self",
    "min(0, self) - log1pf(expf(-|self|))",
    functions.logSigmoid,
  ),
  "aten::elu": comparedInPlaceRow(
    "self alpha scale input_scale",
    "self * scale if it is positive, else expm1f(self * input_scale) * (alpha * scale)",
    functions.elu,
  ),
  "aten::logaddexp": comparedRow(
    "self other",
    "max(self, other) + log1pf(expf(-|self - other|))",
    functions.logAddExp,
  ),
  "aten::glu": comparedRow("self dim", "the first half times the sigmoid of the second", activations.glu),
};

/** Rows of elementwise operators. */
export const ELEMENTWISE: OperatorRows = {
  "aten::_to_copy": comparedRow(
    "self",
    "self, rounded once to the dtype, with overflow to infinity or NaN",
    elementwise.toDType,
  ),
  "aten::copy_": computeRow("self src non_blocking", "src, converted as _to_copy does", elementwise.copyInto),
  ...ARITHMETIC,
  ...FORMULAS,
  ...FUNCTIONS,
  ...ACTIVATIONS,
};
