/**
 * The list of all laws. The laws that compare with the reference are derived from the table of operations; the others need no
 * reference.
 */
import type { Arbitrary } from "fast-check";
import { ArgumentError } from "../../src/errors.js";
import { describe } from "../../src/options.js";
import type { Answer } from "../operations/operation.js";
import {
  type Cases,
  OPERATION_NAMES,
  OPERATIONS,
  type OperationName,
  type Subject,
} from "../operations/operations.js";
import { assertSame, MismatchError } from "../values/difference.js";
import { AMAX_LAWS } from "./amax.js";
import { BATCHED_LAWS } from "./batched.js";
import { ENCODE_LAWS } from "./encode.js";
import { HADAMARD_LAWS } from "./hadamard.js";
import { type Law, law } from "./law.js";
import { checkSubject, type Inputs, operationNames } from "./run-options.js";
import { SCALE_LAWS } from "./scale.js";

/** Throws `MismatchError` unless both answers have the same tensors with the same bits. */
export function assertSameAnswer(actual: Answer, expected: Answer): void {
  const [ours, theirs] = [Object.keys(actual), Object.keys(expected)];
  if (ours.sort().join() !== theirs.sort().join()) {
    throw new MismatchError(
      `the answer has ${ours.join(", ") || "nothing"}; it has to have ${theirs.join(", ")}`,
    );
  }
  for (const [name, expectedTensor] of Object.entries(expected))
    assertSame(name, actual[name] as typeof expectedTensor, expectedTensor);
}

function agreement<K extends OperationName>(operation: K, inputs: Inputs = {}): Law {
  const fields = { name: `${operation} agrees with the reference`, operation, compares: true };
  const arbitrary: Arbitrary<Cases[K]> = inputs[operation] ?? OPERATIONS[operation].arbitrary;
  return law<Cases[K]>(fields, arbitrary, async (subject, input, reference) => {
    const [actual, expected] = [subject[operation], reference[operation]];
    if (actual && expected) assertSameAnswer(await actual(input), await expected(input));
  });
}

/** Every law, by operation. */
export const LAWS: readonly Law[] = [
  ...OPERATION_NAMES.map((operation) => agreement(operation)),
  ...ENCODE_LAWS,
  ...AMAX_LAWS,
  ...SCALE_LAWS,
  ...HADAMARD_LAWS,
  ...BATCHED_LAWS,
];

/** The law of that name. Throws `ArgumentError` for an unknown name. */
export function lawNamed(name: string): Law {
  const match = LAWS.find((each) => each.name === name);
  if (match) return match;
  throw new ArgumentError(
    `no law has the name ${describe(name)}; LAWS has the ${LAWS.length} there are, such as ${LAWS[0]?.name}`,
  );
}

/** The laws of all operations that a subject has. Throws `ArgumentError` for an invalid subject. */
export function lawsFor(
  subject: Subject,
  operations: readonly OperationName[] = OPERATION_NAMES,
): readonly Law[] {
  const ownSubject = checkSubject("lawsFor", subject, "subject");
  const names = operationNames("lawsFor", "operations", operations) as readonly OperationName[];
  return LAWS.filter(({ operation }) => ownSubject[operation] && names.includes(operation));
}

/**
 * Replaces the inputs of a law that compares with the reference by `inputs`. Other laws need their own inputs and are returned
 * unchanged.
 */
export function over(inputs: Inputs, law: Law): Law {
  return law.compares && inputs[law.operation] ? agreement(law.operation, inputs) : law;
}
