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
  assertSame,
  assertSameBits,
  type Difference,
  differenceOf,
  MismatchError,
} from "./harness/difference.js";
export type { GemmCase } from "./harness/gemm-case.js";
export { expectNoLeak, GuardedBackend } from "./harness/guarded.js";
export type { CheckOptions, CheckResult, Failure, Law } from "./harness/law.js";
export { type Inputs, LAWS, lawNamed, lawsFor } from "./harness/laws.js";
export type { Answer, Operation } from "./harness/operation.js";
export type { DecodeCase } from "./harness/operations/decode.js";
export type { DequantizeCase } from "./harness/operations/dequantize.js";
export { type EncodeCase, encodeCase } from "./harness/operations/encode.js";
export type { HadamardCase } from "./harness/operations/hadamard.js";
export { type QuantizeCase, quantizeCase } from "./harness/operations/quantize.js";
export {
  backendSubject,
  type Cases,
  OPERATION_NAMES,
  OPERATIONS,
  type OperationName,
  ORACLE,
  type Subject,
} from "./harness/operations.js";
export { fromCodes, PlainTensor, wideValues } from "./harness/plain.js";
export {
  type BackendOptions,
  type ConformanceOptions,
  type ConformanceReport,
  compareWith,
  type LawReport,
  type Progress,
  runConformance,
} from "./harness/run.js";
