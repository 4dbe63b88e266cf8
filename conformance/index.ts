/**
 * Property-based conformance tests: the arbitraries, laws and harness that test Lockstep's own backends, public so that
 * other kernels can be tested with them.
 */

export type { Complete } from "../src/options.js";
export type { AccumulatorName } from "../src/orders/accumulators.js";
export type { ElementInterval } from "../src/orders/interval.js";
export type { Place } from "../src/orders/isolated.js";
export type { FoundOrder, OrderFinding, OrderVerdict } from "../src/orders/judge.js";
export type { WidthComparison } from "../src/orders/widths.js";
export {
  DETERMINISTIC,
  format,
  OVERFLOWS,
  overflow,
  ROUNDINGS,
  randomSource,
  rounding,
  scalarLayout,
} from "./arbitraries/formats.js";
export { anIndex, indexIn, type MatrixAim, matrixShape, wideMatrix } from "./arbitraries/matrices.js";
export { aimedPattern, anyPattern, narrowed, patternFor, specialPattern } from "./arbitraries/patterns.js";
export { splitmix32, words } from "./arbitraries/random.js";
export {
  layoutsOf,
  optionsOf,
  QUANTIZERS,
  quantizeSpec,
  type SpecOptions,
  scaleLayout,
  sourceType,
  sourceTypes,
  specsOf,
  USAGES,
  usage,
} from "./arbitraries/specs.js";
export type { Supported } from "./arbitraries/supported.js";
export {
  type CorpusCase,
  type CorpusDraw,
  type CorpusRecipe,
  encodeCases,
  quantizeCases,
} from "./corpus/cases.js";
export { type CorpusAim, type CorpusOperand, gemmCases } from "./corpus/products.js";
export type { Counterexample } from "./counterexamples/counterexample.js";
export {
  type AnyOrderReport,
  acceptAnyOrder,
  type OrderReport,
} from "./laws/any-order/accept.js";
export type { OrderedOperation } from "./laws/any-order/draw.js";
export type { OrderOptions } from "./laws/any-order/options.js";
export type { CheckOptions, CheckResult, Failure, Law, LawReport } from "./laws/law.js";
export { LAWS, lawNamed, lawsFor } from "./laws/laws.js";
export { type ConformanceReport, compareWith, runConformance } from "./laws/run.js";
export type {
  BackendOptions,
  ConformanceOptions,
  Inputs,
  Progress,
  SupportedInputs,
} from "./laws/run-options.js";
export { supportedInputs } from "./laws/supported.js";
export type { DecodeCase } from "./operations/cast/decode.js";
export { type EncodeCase, encodeCase } from "./operations/cast/encode.js";
export type { GemmCase } from "./operations/gemm/case.js";
export type { OperandCase, Source } from "./operations/gemm/operand.js";
export { expectNoLeak, GuardedBackend } from "./operations/guarded.js";
export type { Answer, Operation } from "./operations/operation.js";
export {
  backendSubject,
  type Cases,
  OPERATION_NAMES,
  OPERATIONS,
  type OperationName,
  ORACLE,
  type Subject,
} from "./operations/operations.js";
export { PassingBackend } from "./operations/passing.js";
export type { DequantizeCase } from "./operations/quantize/dequantize.js";
export type { HadamardCase } from "./operations/quantize/hadamard.js";
export {
  type Quantization,
  type QuantizeCase,
  quantizeCase,
  type Shapes,
} from "./operations/quantize/quantize.js";
export {
  assertSame,
  assertSameBits,
  type BitsOf,
  type Difference,
  differenceOf,
  MismatchError,
} from "./values/difference.js";
export { type Codes, fromCodes, PlainTensor, wideValues } from "./values/plain.js";
export type { ResultDType } from "./values/rounded.js";
