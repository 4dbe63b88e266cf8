/** All laws. Agreement comes from the table of operations; the others say what is right without a reference. */
import { ArgumentError } from "../../src/errors.js";
import { assertSame, MismatchError } from "./difference.js";
import { type Law, law } from "./law.js";
import { ENCODE_LAWS } from "./laws/encode.js";
import { HADAMARD_LAWS } from "./laws/hadamard.js";
import { SCALE_LAWS } from "./laws/scale.js";
import type { Answer } from "./operation.js";
import { type Cases, OPERATION_NAMES, OPERATIONS, type OperationName, type Subject } from "./operations.js";

/** Throws `MismatchError` unless both answers have the same parts with the same bits. */
export function assertSameAnswer(actual: Answer, expected: Answer): void {
  const [ours, theirs] = [Object.keys(actual), Object.keys(expected)];
  if (ours.sort().join() !== theirs.sort().join()) {
    throw new MismatchError(
      `the answer has ${ours.join(", ") || "nothing"}; it has to have ${theirs.join(", ")}`,
    );
  }
  for (const [name, wanted] of Object.entries(expected))
    assertSame(name, actual[name] as typeof wanted, wanted);
}

function agreement<K extends OperationName>(operation: K): Law {
  const fields = { name: `${operation} agrees with the reference`, operation, compares: true };
  return law<Cases[K]>(fields, OPERATIONS[operation].arbitrary, async (subject, input, reference) => {
    const [ours, theirs] = [subject[operation], reference[operation]];
    if (ours && theirs) assertSameAnswer(await ours(input), await theirs(input));
  });
}

/** Every law, by operation. */
export const LAWS: readonly Law[] = [
  ...OPERATION_NAMES.map(agreement),
  ...ENCODE_LAWS,
  ...SCALE_LAWS,
  ...HADAMARD_LAWS,
];

/** The law of that name. */
export function lawNamed(name: string): Law {
  const found = LAWS.find((each) => each.name === name);
  if (found) return found;
  throw new ArgumentError(`no law is named "${name}"`);
}

/** The laws that a subject can be held to: those of operations it has. */
export function lawsFor(
  subject: Subject,
  operations: readonly OperationName[] = OPERATION_NAMES,
): readonly Law[] {
  return LAWS.filter(({ operation }) => subject[operation] && operations.includes(operation));
}
