/** Runs the laws on a backend, or on the caller's own kernels. */
import * as fc from "fast-check";
import type { Backend } from "../../src/backends/backend.js";
import { openBackend } from "../../src/backends/open.js";
import { gemmCase } from "../operations/gemm/arbitrary.js";
import { batchedCase } from "../operations/gemm/arbitrary-batched.js";
import { backendSubject, type OperationName, ORACLE, type Subject } from "../operations/operations.js";
import type { CheckOptions, LawReport } from "./law.js";
import { lawNamed, lawsFor, over } from "./laws.js";
import { readable } from "./readable-failure.js";
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
import { SeenSpecs } from "./seen-specs.js";
import { inputsWithin } from "./supported.js";

/** The outcome of a conformance run: the verdict, the seed, and the result of each law. */
export interface ConformanceReport {
  /** True if no law failed. */
  readonly ok: boolean;
  /** The seed that draws the same inputs again. */
  readonly seed: number;
  /** The result of each law, in the order of the run. */
  readonly laws: readonly LawReport[];
}

/**
 * Tests an implementation against a reference: each law of each operation of `subject`, with `runs` inputs. The reference
 * defaults to the oracles. Does not throw if a law fails: the report has a simplified and explained counterexample, with the seed
 * and path that replay it, and the name of the mistake if it is a known one. Throws `ArgumentError` before the run for an unknown
 * or invalid option, for unknown operations, for operations that the subject or the reference lacks, and if there is nothing to
 * test. Throws it during the run for a replay path that leads to no input.
 */
export async function compareWith(
  subject: Subject,
  reference: Subject = ORACLE,
  options: ConformanceOptions = {},
): Promise<ConformanceReport> {
  const ownOptions = checkOptions("compareWith", options);
  const ownSubject = checkSubject("compareWith", subject, "subject");
  const ownReference = checkSubject("compareWith", reference, "reference");
  const { runs = 100, seed = 1, replay, supported = {}, comparing = false, onProgress } = ownOptions;
  const inputs = { ...inputsWithin(supported), ...ownOptions.inputs };
  const chosenLaws = replay
    ? [lawNamed(replay.law)]
    : lawsFor(ownSubject, operationsOf(ownSubject, ownOptions.operations)).filter(
        ({ compares }) => compares || !comparing,
      );
  const laws = chosenLaws.map((each) => over(inputs, each));
  for (const { operation, compares } of laws) {
    requireOperation("subject", ownSubject, operation);
    if (compares) requireOperation("reference", ownReference, operation);
  }
  const reports: LawReport[] = [];
  const read = (reread: LawReport): Promise<LawReport> =>
    readable(reread, {
      subject: ownSubject,
      reference: ownReference,
      inputs,
      callerInputs: ownOptions.inputs ?? {},
      supported,
      seed,
    });
  let completed = 0;
  const optionsFor = (law: string, operation: OperationName): CheckOptions => {
    const onRun = (): void =>
      onProgress?.({ law, operation, done: ++completed, planned: runs * laws.length });
    return { runs, seed, path: replay?.path, onRun };
  };
  for (const each of laws) {
    const specs = new SeenSpecs(ownSubject);
    const { name: law, operation } = each;
    const result = await each.check(specs.subject, ownReference, optionsFor(law, operation));
    reports.push(await read({ law, operation, ...result, ...specs.notes }));
  }
  return { ok: reports.every(({ failure }) => failure === undefined), seed, laws: reports };
}

/**
 * Tests a backend: the reference backend against the oracles, any other backend against the reference, bit for bit. Output memory
 * is poisoned before each call, and live memory is counted after it.
 *
 * @throws `ArgumentError`, as `compareWith`. @throws `DisposedError` for a disposed backend.
 */
export async function runConformance(backendOptions: BackendOptions): Promise<ConformanceReport> {
  const { backend, ...options } = checkBackendOptions("runConformance", backendOptions);
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
 * Arbitraries for a GPU: products on the backend's own datapath and on fp32, with one split wherever the backend would
 * choose the number. (Tests of products give the reference the GPU's plan, so that it uses the same splits.)
 */
export function inputsFor({ datapath }: Backend): Inputs {
  const products = gemmCase({ datapaths: () => fc.constantFrom(datapath, datapath, datapath, "fp32") });
  return {
    gemm: products.map((input) => (input.splitK === "auto" ? { ...input, splitK: 1 } : input)),
    batchedGemm: batchedCase({
      datapaths: (format) => fc.constantFrom(format === "f32" ? "fp32" : datapath, "fp32"),
    }),
  };
}
