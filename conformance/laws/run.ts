/** Running the laws: on a backend, or on kernels of one's own. */
import * as fc from "fast-check";
import type { Backend } from "../../src/backends/backend.js";
import { openBackend } from "../../src/backends/open.js";
import { gemmCase } from "../operations/gemm/arbitrary.js";
import { batchedCase } from "../operations/gemm/arbitrary-batched.js";
import { backendSubject, type OperationName, ORACLE, type Subject } from "../operations/operations.js";
import type { CheckResult, Law } from "./law.js";
import { lawNamed, lawsFor, over } from "./laws.js";
import {
  type BackendOptions,
  type ConformanceOptions,
  checkBackendOptions,
  checkOptions,
  checkSubject,
  type Inputs,
  operationsOf,
  requireOperation,
} from "./run-options.js";

/** One law's outcome. */
export interface LawReport extends CheckResult {
  /** The law's name. */
  readonly law: string;
  /** The operation that it is about. */
  readonly operation: OperationName;
}

/** What a conformance run found: a verdict, the seed that repeats it, and each law's result. */
export interface ConformanceReport {
  /** Whether no law failed. */
  readonly ok: boolean;
  /** The seed that draws the same inputs again. */
  readonly seed: number;
  /** What came of each law, in the order they ran. */
  readonly laws: readonly LawReport[];
}

/**
 * Holds an implementation to a reference: each law of each operation that `subject` has, over `runs` inputs.
 * The reference defaults to the oracles. Never throws for a law that fails: the report has its shrunk
 * counterexample, and the seed and path that replay it. Throws `ArgumentError` before anything runs for an option that there is
 * not or a value that it cannot have, for names that are none, for operations that the subject or the reference does not
 * have, and where there is nothing to check; while it runs, for a path that leads to no input.
 */
export async function compareWith(
  subject: Subject,
  reference: Subject = ORACLE,
  options: ConformanceOptions = {},
): Promise<ConformanceReport> {
  checkOptions("compareWith", options);
  checkSubject("compareWith", subject, "subject");
  checkSubject("compareWith", reference, "reference");
  const { runs = 100, seed = 1, replay, inputs = {}, onProgress } = options;
  const chosen = replay
    ? [lawNamed(replay.law)]
    : lawsFor(subject, operationsOf(subject, options.operations));
  const laws = chosen.map((each) => over(inputs, each));
  for (const { operation, compares } of laws) {
    requireOperation("subject", subject, operation);
    if (compares) requireOperation("reference", reference, operation);
  }
  const reports: LawReport[] = [];
  let done = 0;
  const check = ({ name: law, operation, check: run }: Law): Promise<CheckResult> => {
    const onRun = (): void => onProgress?.({ law, operation, done: ++done, planned: runs * laws.length });
    return run(subject, reference, { runs, seed, path: replay?.path, onRun });
  };
  for (const each of laws)
    reports.push({ law: each.name, operation: each.operation, ...(await check(each)) });
  return { ok: reports.every(({ failure }) => failure === undefined), seed, laws: reports };
}

/**
 * Holds a backend to the definition: the reference to the independent oracles, any other backend to the reference, bit for
 * bit, with poisoned outputs and counted memory.
 *
 * @throws `ArgumentError`, as `compareWith`.
 * @throws `DisposedError` for a backend that was disposed of.
 */
export async function runConformance(given: BackendOptions): Promise<ConformanceReport> {
  const { backend, ...options } = checkBackendOptions("runConformance", given);
  if (backend.name === "wasm") return compareWith(backendSubject(backend), ORACLE, options);
  const reference = await openBackend("wasm", { datapath: backend.datapath });
  const inputs = { ...inputsFor(backend), ...options.inputs };
  try {
    return await compareWith(backendSubject(backend), backendSubject(reference), { ...options, inputs });
  } finally {
    await reference.dispose();
  }
}

/**
 * What to draw for a GPU: products on the datapath it has, and on fp32, in one part where the choice would be the
 * backend's (the reference follows a choice by its plan, which the product's own tests give it).
 */
export function inputsFor({ datapath }: Backend): Inputs {
  const products = gemmCase(() => fc.constantFrom(datapath, datapath, datapath, "fp32"));
  return {
    gemm: products.map((input) => (input.splitK === "auto" ? { ...input, splitK: 1 } : input)),
    batchedGemm: batchedCase((format) => fc.constantFrom(format === "f32" ? "fp32" : datapath, "fp32")),
  };
}
