/** Makes the failure of a law readable: simplified, explained, and with the name of the mistake. */
import * as fc from "fast-check";
import { allows } from "../arbitraries/supported.js";
import { counterexampleOf } from "../counterexamples/counterexample.js";
import { type Cases, OPERATIONS, type OperationName, type Subject } from "../operations/operations.js";
import { type QuantizeCase, quantizeCaseBy } from "../operations/quantize/quantize.js";
import type { LawReport } from "./law.js";
import { assertSameAnswer, lawNamed } from "./laws.js";
import type { Inputs, SupportedInputs } from "./run-options.js";

/** The run in which a law failed. */
export interface Run {
  readonly subject: Subject;
  readonly reference: Subject;
  /** The arbitraries that inputs were drawn from. */
  readonly inputs: Inputs;
  /** The arbitraries that the caller supplied. */
  readonly callerInputs: Inputs;
  readonly supported: SupportedInputs;
  readonly seed: number;
}

/** The report with a readable failure, if the law compares with the reference. */
export async function readable(report: LawReport, run: Run): Promise<LawReport> {
  const { failure, operation } = report;
  if (!failure || !lawNamed(report.law).compares) return report;
  const counterexample = await foundBy(operation, failure.input, run);
  return counterexample ? { ...report, failure: { ...failure, found: counterexample } } : report;
}

async function foundBy<K extends OperationName>(operation: K, failed: unknown, run: Run) {
  const { subject, reference, inputs, callerInputs, supported, seed } = run;
  const [actual, expected] = [subject[operation], reference[operation]];
  if (!actual || !expected) return undefined;
  const input = failed as Cases[K];
  // the domain of the caller's inputs is unknown
  const isKnown = !callerInputs[operation];
  const fields = supported[operation] ?? {};
  const isAllowed = (each: Cases[K]): boolean => allows(fields, each);
  const arbitrary: fc.Arbitrary<Cases[K]> = inputs[operation] ?? OPERATIONS[operation].arbitrary;
  const drawn = fc.sample(arbitrary, { numRuns: DRAWN, seed });
  const probes = PROBES[operation]?.({ input, drawn, isAllowed, isKnown, seed }) ?? drawn;
  return counterexampleOf({
    operation,
    input,
    subject: actual,
    reference: expected,
    assertSame: assertSameAnswer,
    probes,
    ...(isKnown ? { allows: isAllowed } : {}),
  });
}

/** The number of inputs to draw, of which those closest to the counterexample are asked. */
const DRAWN = 200;

interface Draw<K extends OperationName> {
  readonly input: Cases[K];
  readonly drawn: readonly Cases[K][];
  readonly isAllowed: (input: Cases[K]) => boolean;
  readonly isKnown: boolean;
  readonly seed: number;
}

/** The number of elements of the largest tensor to ask. */
const MAX_ELEMENTS = 4096;

const text = (value: unknown): string => JSON.stringify(value);

/** Inputs that distinguish mistakes: the same settings, in the plain layout. */
const PROBES: { readonly [K in OperationName]?: (draw: Draw<K>) => readonly Cases[K][] } = {
  quantize({ input, drawn, isAllowed, isKnown, seed }) {
    const plain = (isPlain: QuantizeCase): boolean =>
      isPlain.scaleLayout === "logical" &&
      isPlain.noop !== 1 &&
      !isPlain.part &&
      isPlain.x.data.length > 0 &&
      isPlain.x.data.length <= MAX_ELEMENTS &&
      (isPlain.usage.rowwise || !input.usage.rowwise) &&
      (isPlain.usage.columnwise || !input.usage.columnwise) &&
      text(isPlain.spec) === text(input.spec);
    const similar = drawn.filter(plain);
    if (!isKnown) return similar;
    const cases = quantizeCaseBy(fc.constant(input.spec)).map((each) => ({
      ...each,
      usage: input.usage,
      scaleLayout: input.scaleLayout,
      scale: input.scale,
      random: input.random,
      noop: undefined,
      ...(input.records === undefined ? {} : { records: input.records }),
    }));
    const plainCases = fc
      .sample(cases, { numRuns: DRAWN, seed })
      .filter((each) => plain(each) && isAllowed(each));
    return similar.length > 16 ? similar : [...similar, ...plainCases];
  },
};
