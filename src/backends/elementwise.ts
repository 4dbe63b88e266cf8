/**
 * The table of elementwise operators. An operator computes each element of its result from one element of each input, and from
 * numbers. From its row, `npm run generate` writes its arguments, entry point, lowerings, native call, loops and kernel launcher
 * (every `operators.gen.*`), and its row of numerics.md §7.10. By hand, it has a function of its name in
 * assembly/elementwise/operators.ts, kernels/elementwise/operators.cuh and conformance/oracle/elementwise/operators.ts.
 */

export interface Operator {
  /** What the operator does, as one sentence. */
  readonly summary: string;
  /** What the operator computes, for comments: an expression of its inputs and numbers. */
  readonly formula: string;
  /** The definition to the bit, before the result is rounded to its type, for numerics.md. */
  readonly definition: string;
  /** The contract of the operator's function: the first sentences of the docstring. */
  readonly contract: string;
  /** The input tensors (f32, bf16 or f16), in the order of the parameters, each with a description. */
  readonly inputs: Readonly<{ condition?: string; x: string; y?: string }>;
  /** The numbers, which follow the tensors and are rounded to f32, each with a description. */
  readonly numbers?: Readonly<Record<string, string>>;
  /** The result as a noun, for docstrings. */
  readonly result: string;
  /** The approximate cost of an element, in units of copying it. Default: 1. */
  readonly weight?: number;
}

export const OPERATORS = {
  add: {
    summary: "Adds two tensors.",
    formula: "x + y",
    definition: "x ⊕ y",
    contract:
      "Computes x + y for each element: one f32 addition, rounded once to `outDtype`, with overflow to infinity (numerics.md §7.10).",
    inputs: { x: "The first addend.", y: "The second addend." },
    result: "the f32 sum",
  },
  multiply: {
    summary: "Multiplies two tensors.",
    formula: "x * y",
    definition: "x ⊗ y",
    contract:
      "Computes x * y for each element: one f32 multiplication, rounded once to `outDtype`, with overflow to infinity (numerics.md §7.10). NaN and infinities propagate as in IEEE 754 multiplication.",
    inputs: { x: "The first factor.", y: "The second factor." },
    result: "the f32 product",
  },
  scaled: {
    summary: "Multiplies a tensor by a number.",
    formula: "x * factor",
    definition: "x ⊗ factor",
    contract:
      "Computes x * factor for each element. `factor` is rounded to f32; the product is one f32 multiplication, rounded once to `outDtype`, with overflow to infinity (numerics.md §7.10). NaN and infinities propagate as in IEEE 754 multiplication.",
    inputs: { x: "The tensor that is multiplied." },
    numbers: { factor: "The factor, an f32 value." },
    result: "the f32 product",
  },
  sigmoid: {
    summary: "Applies the logistic function.",
    formula: "1 / (1 + e^-x)",
    definition: "the value of `sigmoid` in §7.2",
    contract:
      "Computes 1 / (1 + e^-x) for each element: evaluated in f64, rounded to f32, then to `outDtype` (numerics.md §7.2). It is 0 for -infinity, 1 for infinity, and NaN for NaN. The result equals `activation` of kind `sigmoid`.",
    inputs: { x: "The argument of the logistic function." },
    result: "the f32 value",
    weight: 8,
  },
  divide: {
    summary: "Divides a tensor by another.",
    formula: "x / y",
    definition: "x ⊘ y",
    contract:
      "Computes x / y for each element: one f32 division, rounded once to `outDtype`, with overflow to infinity (numerics.md §7.10). NaN, infinities and division by zero follow IEEE 754.",
    inputs: { x: "The dividend.", y: "The divisor." },
    result: "the f32 quotient",
    weight: 2,
  },
  exp: {
    summary: "Applies the exponential function.",
    formula: "e^x",
    definition: "e^x of §7.6",
    contract:
      "Computes e^x for each element: evaluated in f64, rounded to f32, then to `outDtype` (numerics.md §7.6). It is 0 for -infinity, infinity for infinity, and NaN for NaN.",
    inputs: { x: "The exponent." },
    result: "the f32 value",
    weight: 8,
  },
  rsqrt: {
    summary: "Computes reciprocals of square roots.",
    formula: "1 / sqrt(x)",
    definition: "1 ⊘ sqrt(x), where sqrt is rounded to f32",
    contract:
      "Computes 1 / sqrt(x) for each element: an f32 square root and an f32 division, each rounded, then rounded to `outDtype` (numerics.md §7.10). It is infinity with the sign of x for a zero, 0 for infinity, and NaN for NaN and negative x.",
    inputs: { x: "The number under the root." },
    result: "the f32 value",
    weight: 3,
  },
  sqrtSoftplus: {
    summary: "Applies the square root of softplus.",
    formula: "sqrt(log(1 + e^x))",
    definition: "the value of `sqrtSoftplus` in §7.17",
    contract:
      "Computes sqrt(log(1 + e^x)) for each element: evaluated in f64, rounded to f32, then to `outDtype` (numerics.md §7.17). It is 0 for -infinity, infinity for infinity, and NaN for NaN.",
    inputs: { x: "The argument of softplus." },
    result: "the f32 value",
    weight: 16,
  },
  sqrtSoftplusDerivative: {
    summary: "Computes the derivative of the square root of softplus.",
    formula: "1 / ((1 + e^-x) * 2 * sqrt(log(1 + e^x)))",
    definition: "the derivative of `sqrtSoftplus` in §7.17",
    contract:
      "Computes the derivative of sqrt(log(1 + e^x)) for each element: evaluated in f64, rounded to f32, then to `outDtype` (numerics.md §7.17). It is 0 for both infinities, and NaN for NaN.",
    inputs: { x: "The argument of softplus." },
    result: "the f32 value",
    weight: 16,
  },
  where: {
    summary: "Selects elements of two tensors.",
    formula: "condition ? x : y",
    definition: "x where condition is not 0, else y",
    contract:
      "Takes, for each element, x if `condition` is not 0, else y, rounded once to `outDtype`, with overflow to infinity (numerics.md §7.10). A zero of either sign selects y; NaN selects x.",
    inputs: {
      condition: "The condition: true where it is not 0.",
      x: "The elements where the condition is true.",
      y: "The elements where the condition is false.",
    },
    result: "the selected value",
  },
} as const satisfies Readonly<Record<string, Operator>>;

export type OperatorName = keyof typeof OPERATORS;

export const OPERATOR_NAMES = Object.keys(OPERATORS) as readonly OperatorName[];
