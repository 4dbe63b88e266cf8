/** Rows of elementwise operators. */
import * as activations from "../activations.js";
import * as arithmetic from "../arithmetic.js";
import type { Model } from "../call.js";
import * as elementwise from "../elementwise.js";
import { atan2, erfc, hypot, log10 } from "../erfc-atan2-hypot.js";
import * as functions from "../log1p-expm1.js";
import { mathFunction, ofOne } from "../pointwise.js";
import * as powers from "../powers.js";
import { computed, confirmed, inPlace, type OperatorRow, type OperatorRows } from "./row.js";

/** The row of an operator that the recorded calls in torch-operators/elementwise.json confirmed. */
function compared(parameters: string, definition: string, model: Model): OperatorRow {
  const inputs = "5,099 elements in f32, bf16 and f16 each, with special numbers";
  return confirmed(computed(parameters, definition, model), inputs);
}

/** The row of an operator and of its in-place variant. */
const withInPlace = (...row: Parameters<typeof compared>): OperatorRow => inPlace(compared(...row));

/** The row of an operator that is a math function of CUDA. */
function math(name: Parameters<typeof mathFunction>[0]): OperatorRow {
  return withInPlace("self", `${name} of CUDA in f32`, mathFunction(name));
}

const comparison = (sign: string, predicate: (x: number, y: number) => boolean): OperatorRow =>
  compared("self other", `self ${sign} other`, elementwise.comparisonModel(predicate));

const COMPARISONS = {
  eq: comparison("==", (x, y) => x === y),
  ne: comparison("!=", (x, y) => x !== y),
  lt: comparison("<", (x, y) => x < y),
  le: comparison("<=", (x, y) => x <= y),
  gt: comparison(">", (x, y) => x > y),
  ge: comparison(">=", (x, y) => x >= y),
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
  add: withInPlace("self other alpha", "fma(other, alpha, self), rounded once", arithmetic.added),
  sub: withInPlace("self other alpha", "fma(other, -alpha, self), rounded once", arithmetic.subtracted),
  rsub: compared("self other alpha", "fma(self, -alpha, other), rounded once", arithmetic.reverseSubtract),
  mul: withInPlace("self other", "self * other in f32, rounded once", arithmetic.multiplied),
  div: withInPlace(
    "self other",
    "self / other in f32, rounded once; a number's reciprocal is rounded to f32 first",
    arithmetic.divide,
  ),
  copysign: withInPlace("self other", "self with the sign of other", arithmetic.copySign),
  fmod: withInPlace(
    "self other",
    "the exact remainder with the sign of self; a number is rounded to the dtype first",
    arithmetic.ofTwoInDType((x, y) => x % y),
  ),
  remainder: withInPlace(
    "self other",
    "fmod, plus other if the signs differ; a number is rounded to the dtype first",
    arithmetic.ofTwoInDType(arithmetic.floorRemainder),
  ),
  ...COMPARISONS,
});

const LERP = withInPlace(
  "self end weight",
  "fma(weight, end - self, self), or from end if |weight| is 1/2 or more; rounded once",
  arithmetic.lerp,
);

/** Rows of formulas of several tensors. */
const FORMULAS: OperatorRows = {
  "aten::lerp.Scalar": LERP,
  "aten::lerp.Tensor": LERP,
  "aten::addcmul": withInPlace(
    "self tensor1 tensor2",
    "fma(value, tensor1 * tensor2, self), or fma(tensor1, tensor2, self) if value is 1; rounded once",
    arithmetic.addcmulOrAddcdiv("product"),
  ),
  "aten::addcdiv": withInPlace(
    "self tensor1 tensor2",
    "fma(value, tensor1 / tensor2, self), rounded once",
    arithmetic.addcmulOrAddcdiv("quotient"),
  ),
  "aten::clamp": withInPlace("self min max", "self within two numbers; NaN stays", arithmetic.clamp),
  "aten::clamp_min": withInPlace("self min", "self or a larger number; NaN stays", arithmetic.clamp),
  "aten::maximum": compared("self other", "the larger one, or NaN", arithmetic.ofTwo(Math.max)),
  "aten::minimum": compared("self other", "the smaller one, or NaN", arithmetic.ofTwo(Math.min)),
  "aten::fmax": compared(
    "self other",
    "the larger one that is not NaN",
    arithmetic.ofTwo(arithmetic.ignoringNaN(Math.max)),
  ),
  "aten::fmin": compared(
    "self other",
    "the smaller one that is not NaN",
    arithmetic.ofTwo(arithmetic.ignoringNaN(Math.min)),
  ),
  "aten::atan2": withInPlace("self other", "atan2f of CUDA in f32", arithmetic.ofTwo(atan2)),
  "aten::hypot": withInPlace("self other", "hypotf of CUDA in f32", arithmetic.ofTwo(hypot)),
  "aten::pow.Tensor_Scalar": withInPlace(
    "self exponent",
    "powf; ones, self, sqrtf, rsqrtf, products or quotients for some exponents",
    powers.power,
  ),
  "aten::pow.Scalar": compared(
    "self exponent",
    "powf of a number rounded to the dtype",
    powers.powerOfNumber,
  ),
  "aten::pow.Tensor_Tensor": withInPlace("self exponent", "powf of two tensors", powers.powerOfTensors),
};

const SIGN = withInPlace("self", "1, 0 or -1; NaN gives 0", ofOne(arithmetic.signOf));

/** Rows of functions of one tensor. */
const FUNCTIONS: OperatorRows = {
  "aten::neg": withInPlace("self", "the other sign", elementwise.negated),
  "aten::abs": withInPlace("self", "the positive sign", elementwise.absolute),
  "aten::floor": withInPlace("self", "rounded down to an integer", ofOne(Math.floor)),
  "aten::ceil": withInPlace("self", "rounded up to an integer", ofOne(Math.ceil)),
  "aten::trunc": withInPlace("self", "rounded toward zero to an integer", ofOne(Math.trunc)),
  "aten::round": withInPlace(
    "self",
    "rounded to the nearest integer, ties to even",
    ofOne(arithmetic.roundedToInteger),
  ),
  "aten::frac": withInPlace(
    "self",
    "self less its integer part",
    ofOne((x) => x - Math.trunc(x)),
  ),
  "aten::sign": SIGN,
  "aten::sgn": SIGN,
  "aten::square": withInPlace(
    "self",
    "self * self, rounded once",
    ofOne((x) => x * x),
  ),
  "aten::isnan": compared("self", "whether it is NaN", elementwise.conditionModel(Number.isNaN)),
  "aten::logical_not": compared(
    "self",
    "whether it is zero",
    elementwise.conditionModel((x) => x === 0),
  ),
  "aten::reciprocal": withInPlace(
    "self",
    "1 / self in f32, rounded once",
    ofOne((x) => 1 / x),
  ),
  "aten::exp": math("expf"),
  "aten::log": math("logf"),
  "aten::exp2": math("exp2f"),
  "aten::log2": math("log2f"),
  "aten::log10": withInPlace("self", "logf(self) * log10 e in f32", log10),
  "aten::sqrt": math("sqrtf"),
  "aten::rsqrt": math("rsqrtf"),
  "aten::tanh": math("tanhf"),
  "aten::erf": math("erff"),
  "aten::erfc": withInPlace("self", "erfcf of CUDA in f32", erfc),
  "aten::expm1": withInPlace("self", "expm1f of CUDA in f32", ofOne(functions.expm1)),
  "aten::log1p": withInPlace("self", "log1pf of CUDA in f32", ofOne(functions.log1p)),
  "aten::sin": math("sinf"),
  "aten::cos": math("cosf"),
};

/** Rows of activation functions and their gradients. */
const ACTIVATIONS: OperatorRows = {
  "aten::relu": withInPlace("self", "+0 where self is at most 0, else self", elementwise.relu),
  "aten::threshold_backward": compared(
    "grad_output self threshold",
    "+0 where self is at most the threshold, else grad_output",
    elementwise.thresholdBackward,
  ),
  "aten::silu": withInPlace("self", "self / (1 + expf(-self)) in f32, each step rounded", activations.silu),
  "aten::silu_backward": compared(
    "grad_output self",
    "grad * s * fma(self, 1 - s, 1) in f32, each step rounded; s is the sigmoid",
    activations.siluBackward,
  ),
  "aten::sigmoid": withInPlace(
    "self",
    "1 / (1 + expf(-self)) in f32, each step rounded",
    activations.sigmoid,
  ),
  "aten::sigmoid_backward": compared(
    "grad_output output",
    "grad * (1 - output) * output, each step rounded to the dtype",
    activations.sigmoidBackward,
  ),
  "aten::tanh_backward": compared(
    "grad_output output",
    "grad * fma(-output, output, 1); in 16 bits each step rounded to the dtype",
    activations.tanhBackward,
  ),
  "aten::gelu": withInPlace(
    "self",
    "self / 2 * (1 + t) in f32, each step rounded; t is erff(self * 0.5^0.5), or tanhf(b * fma(k, self^3, self))",
    activations.gelu,
  ),
  "aten::gelu_backward": compared(
    "grad_output self",
    "grad * fma(1 + t, 1/2, u) in f32, each step rounded; u is self times the density, or the derivative by tanhf",
    activations.geluBackward,
  ),
  "aten::hardswish": withInPlace("self", "self * min(max(self + 3, 0), 6) * (1/6)", activations.hardswish),
  "aten::hardsigmoid": withInPlace("self", "min(max(self + 3, 0), 6) * (1/6)", activations.hardsigmoid),
  "aten::leaky_relu": withInPlace(
    "self negative_slope",
    "self, or self * negative_slope if it is not positive",
    activations.leakyRelu,
  ),
  "aten::softplus": withInPlace(
    "self beta threshold",
    "log1pf(expf(self * beta)) / beta, or self where self * beta is above the threshold",
    functions.softplus,
  ),
  "aten::mish": withInPlace("self", "self * tanhf(log1pf(expf(self)))", functions.mish),
  "aten::log_sigmoid_forward": compared("self", "min(0, self) - log1pf(expf(-|self|))", functions.logSigmoid),
  "aten::elu": withInPlace(
    "self alpha scale input_scale",
    "self * scale if it is positive, else expm1f(self * input_scale) * (alpha * scale)",
    functions.elu,
  ),
  "aten::logaddexp": compared(
    "self other",
    "max(self, other) + log1pf(expf(-|self - other|))",
    functions.logAddExp,
  ),
  "aten::glu": compared("self dim", "the first half times the sigmoid of the second", activations.glu),
};

/** Rows of elementwise operators. */
export const ELEMENTWISE: OperatorRows = {
  "aten::_to_copy": compared(
    "self",
    "self, rounded once to the dtype, with overflow to infinity or NaN",
    elementwise.converted,
  ),
  "aten::copy_": computed("self src non_blocking", "src, converted as _to_copy does", elementwise.copiedInto),
  ...ARITHMETIC,
  ...FORMULAS,
  ...FUNCTIONS,
  ...ACTIVATIONS,
};
