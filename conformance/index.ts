/**
 * Property-based conformance: the arbitraries, the laws and the harness that hold Lockstep's own backends to
 * their definition, for holding other kernels to it.
 */
export * from "./arbitraries/formats.js";
export * from "./arbitraries/matrices.js";
export * from "./arbitraries/patterns.js";
export * from "./arbitraries/random.js";
export * from "./arbitraries/specs.js";
export {
  type CorpusCase,
  type CorpusDraw,
  type CorpusRecipe,
  encodeCases,
  quantizeCases,
} from "./corpus/cases.js";
export { type CorpusAim, gemmCases } from "./corpus/products.js";
export type { CheckOptions, CheckResult, Failure, Law } from "./laws/law.js";
export { LAWS, lawNamed, lawsFor } from "./laws/laws.js";
export {
  type ConformanceReport,
  compareWith,
  type LawReport,
  runConformance,
} from "./laws/run.js";
export type { BackendOptions, ConformanceOptions, Inputs, Progress } from "./laws/run-options.js";
export type { DecodeCase } from "./operations/cast/decode.js";
export { type EncodeCase, encodeCase } from "./operations/cast/encode.js";
export type { GemmCase } from "./operations/gemm/case.js";
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
export type { DequantizeCase } from "./operations/quantize/dequantize.js";
export type { HadamardCase } from "./operations/quantize/hadamard.js";
export { type QuantizeCase, quantizeCase } from "./operations/quantize/quantize.js";
export {
  assertSame,
  assertSameBits,
  type Difference,
  differenceOf,
  MismatchError,
} from "./values/difference.js";
export { fromCodes, PlainTensor, wideValues } from "./values/plain.js";
