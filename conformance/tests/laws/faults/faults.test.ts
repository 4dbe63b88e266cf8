/**
 * Faults planted in the reference, under every quantizer and dialect: the named mistake, applied to the reference, gives the
 * kernel's wrong answers, also on new inputs. A fault without a name gets no cause.
 */
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { quantizerOf } from "../../../../src/dialects/quantizer-of.js";
import { DIALECT_NAMES, DIALECTS, type Dialect } from "../../../../src/dialects/table.js";
import type { QuantizeSpec } from "../../../../src/tensor/quantized.js";
import { makeSpec } from "../../../../src/tensor/spec.js";
import { QUANTIZERS } from "../../../arbitraries/specs.js";
import { confirmed, sameAnswer } from "../../../counterexamples/diagnose.js";
import type { Evidence } from "../../../counterexamples/suspects/suspect.js";
import { backendSubject } from "../../../operations/operations.js";
import { type QuantizeCase, quantizeCaseBy } from "../../../operations/quantize/quantize.js";
import { drawsOr, SEED, sampleCases } from "../../harness/draws.js";
import { useBackend } from "../../harness/suite.js";
import { NAMED, UNNAMED } from "./faults.js";
import type { Fault } from "./stages.js";

/** The number of specs in which each fault is planted. */
const RUNS = drawsOr(1);

const backend = useBackend();
const reference = (input: QuantizeCase) => backendSubject(backend()).quantize(input);

/** A spec for each quantizer, including stochastic ones, and for each quantizer of each dialect. */
const SPECS: readonly QuantizeSpec[] = [
  ...QUANTIZERS.map((name) => makeSpec(name, {})),
  ...(["mxfp8", "mxfp4", "nvfp4"] as const).map((name) => makeSpec(name, { stochastic: true })),
  ...DIALECT_NAMES.flatMap((dialect) => {
    const { forms }: Dialect = DIALECTS[dialect];
    return forms.map(({ quantizer }) => quantizerOf({ dialect, quantizer }).spec);
  }),
];

/** Inputs of a few blocks for a spec, one copy each, in the plain layout. */
function inputsOf(spec: QuantizeSpec, seed: number, count: number): readonly QuantizeCase[] {
  const inputs = quantizeCaseBy(fc.constant(spec))
    .filter(({ x, part, random }) => !part && x.data.length > 0 && x.data.length <= 1024 && !!random)
    .map((input) => {
      const { randomBitsColumnwise: _, ...fields } = input;
      return {
        ...fields,
        usage: { rowwise: true, columnwise: false },
        scaleLayout: "logical" as const,
        noop: undefined,
      };
    });
  return fc.sample(inputs, { numRuns: count, seed });
}

async function evidenceOf(
  fault: Fault,
  inputs: readonly QuantizeCase[],
): Promise<readonly Evidence<QuantizeCase>[]> {
  const evidence: Evidence<QuantizeCase>[] = [];
  for (const input of inputs)
    evidence.push({ input, expected: await reference(input), actual: await fault.answer(input, reference) });
  // the counterexample comes first
  const firstDifference = evidence.findIndex(({ actual, expected }) => !sameAnswer(actual, expected));
  if (firstDifference < 0) return [];
  return [
    evidence[firstDifference] as Evidence<QuantizeCase>,
    ...evidence.filter((_, i) => i !== firstDifference),
  ];
}

async function* furtherInputs(
  fault: Fault,
  inputs: readonly QuantizeCase[],
): AsyncGenerator<Evidence<QuantizeCase>> {
  for (const input of inputs)
    yield { input, expected: await reference(input), actual: await fault.answer(input, reference) };
}

const keyOf = (spec: QuantizeSpec): string => JSON.stringify(spec);

/**
 * The specs in which a fault can be planted, in an order that depends on the seed. They are tried until the fault shows in `RUNS`
 * of them.
 */
function specsFor({ name, isFor = () => true }: Fault): readonly QuantizeSpec[] {
  const unique = [...new Map(SPECS.map((spec) => [keyOf(spec), spec])).values()].filter(isFor);
  const salt = Array.from(name).reduce(
    (sum, character) => (sum * 31 + character.charCodeAt(0)) % 65521,
    SEED,
  );
  const order = fc.shuffledSubarray(unique, { minLength: unique.length, maxLength: unique.length });
  return fc.sample(order, { numRuns: 1, seed: salt })[0] ?? [];
}

/** The report on a fault in a spec. Undefined if no input shows the fault. */
async function observationsOf(fault: Fault, spec: QuantizeSpec) {
  const evidence = await evidenceOf(fault, inputsOf(spec, SEED, 8));
  if (evidence.length === 0) return undefined;
  const { mistakes, observations } = await confirmed(
    "quantize",
    evidence,
    async (input) => reference(input),
    furtherInputs(fault, inputsOf(spec, SEED + 500, 12)),
  );
  const refutedCauses: string[] = [];
  for (const { words, answer } of mistakes)
    for (const { input, expected, actual } of [
      ...evidence,
      ...(await evidenceOf(fault, inputsOf(spec, SEED + 1000, 6))),
    ]) {
      const wrongAnswer = await answer({ input, expected });
      if (wrongAnswer && !sameAnswer(wrongAnswer, actual)) refutedCauses.push(words);
    }
  const words = mistakes.map((mistake) => mistake.words);
  return { mistakes: words, kept: words.filter((phrase) => !refutedCauses.includes(phrase)), observations };
}

/** A fault with its name, as a row of a table. */
const rowsOf = (faults: readonly Fault[]) => sampleCases(faults.map((fault) => [fault.name, fault] as const));

/** Calls `check` for `RUNS` specs in which the fault shows, and at least for one. */
async function whereShown(
  fault: Fault,
  check: (words: NonNullable<Awaited<ReturnType<typeof observationsOf>>>, spec: QuantizeSpec) => void,
): Promise<void> {
  let numShown = 0;
  for (const spec of specsFor(fault)) {
    if (numShown === RUNS) break;
    const words = await observationsOf(fault, spec);
    if (!words) continue;
    numShown++;
    check(words, spec);
  }
  expect(numShown).toBeGreaterThan(0);
}

describe("a planted fault that has a name", () => {
  it.each(rowsOf(NAMED))("is called by it: %s", (_, fault) =>
    whereShown(fault, ({ kept, observations }, spec) =>
      expect(kept.join("\n"), `${keyOf(spec)} ${observations.join("; ")}`).toMatch(
        fault.causePattern as RegExp,
      ),
    ),
  );
});

describe("a planted fault that has no name", () => {
  it.each(rowsOf(UNNAMED))("gets no cause: %s", (_, fault) =>
    whereShown(fault, ({ mistakes, observations }, spec) => {
      expect(mistakes, keyOf(spec)).toEqual([]);
      expect(observations.length, keyOf(spec)).toBeGreaterThan(0);
    }),
  );
});

it("plants at least 40 faults", () => {
  expect(new Set([...NAMED, ...UNNAMED].map(({ name }) => name)).size).toBeGreaterThanOrEqual(40);
});
