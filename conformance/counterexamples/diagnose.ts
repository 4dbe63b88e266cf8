/** Names a subject's mistakes: the suspects that explain every bit of all its answers, including correct ones. */
import { LockstepError } from "../../src/errors.js";
import type { Answer } from "../operations/operation.js";
import type { Cases, OperationName } from "../operations/operations.js";
import type { QuantizeCase } from "../operations/quantize/quantize.js";
import { differenceOf } from "../values/difference.js";
import { ANSWER_SUSPECTS } from "./suspects/answers.js";
import { MAX_NAMES } from "./suspects/codes.js";
import { nameQuantization } from "./suspects/quantize.js";
import type { Evidence, Explanation, MaybeAnswer, Naming, Right } from "./suspects/suspect.js";

/**
 * The mistakes that explain every bit of all answers, the likely ones first; several if the answers do not distinguish them. If
 * there are none: facts about the wrong bits.
 */
async function named<K extends OperationName>(
  operation: K,
  evidence: readonly Evidence<Cases[K]>[],
  right: Right<K>,
): Promise<Naming<Cases[K]>> {
  const explanations: Explanation<Cases[K]>[] = [];
  for (const { words, answer } of ANSWER_SUSPECTS[operation] ?? []) {
    const explanation: Explanation<Cases[K]> = {
      words,
      answer: ({ input, expected }) => answer(input, right, expected),
    };
    if (await explainsAll(evidence, explanation.answer)) explanations.push(explanation);
    if (explanations.length >= MAX_NAMES) return { mistakes: explanations, observations: [] };
  }
  if (operation !== "quantize") return { mistakes: explanations, observations: [] };
  const { mistakes, observations } = nameQuantization(
    evidence as readonly Evidence<QuantizeCase>[],
  ) as Naming<Cases[K]>;
  for (const each of mistakes) if (await explainsAll(evidence, each.answer)) explanations.push(each);
  return {
    mistakes: explanations.slice(0, MAX_NAMES),
    observations: explanations.length > 0 ? [] : observations,
  };
}

/** As `named`, then checks the mistakes against further answers, one at a time: a mistake that fits by chance is refuted. */
export async function confirmed<K extends OperationName>(
  operation: K,
  evidence: readonly Evidence<Cases[K]>[],
  right: Right<K>,
  further: AsyncIterable<Evidence<Cases[K]>>,
): Promise<Naming<Cases[K]>> {
  let naming = await named(operation, evidence, right);
  for await (const each of further) {
    if (naming.mistakes.length === 0) break;
    const mistakes: Explanation<Cases[K]>[] = [];
    for (const mistake of naming.mistakes) {
      const predicted = await answerOf(each, mistake.answer);
      if (!predicted || sameAnswer(predicted, each.actual)) mistakes.push(mistake);
    }
    naming =
      mistakes.length > 0
        ? { mistakes, observations: [] }
        : await named(operation, [...evidence, each], right);
  }
  return naming;
}

/** Whether a suspect explains the first answer, which is wrong, and every other answer that it predicts. */
async function explainsAll<C>(
  evidence: readonly Evidence<C>[],
  answer: (each: Evidence<C>) => MaybeAnswer,
): Promise<boolean> {
  for (const [i, each] of evidence.entries()) {
    const predicted = await answerOf(each, answer);
    if (predicted ? !sameAnswer(predicted, each.actual) : i === 0) return false;
  }
  return evidence.length > 0;
}

/** A suspect's predicted answer. Undefined if its changed input is invalid for the operation. */
async function answerOf<C>(
  each: Evidence<C>,
  answer: (each: Evidence<C>) => MaybeAnswer,
): Promise<Answer | undefined> {
  try {
    return await answer(each);
  } catch (error) {
    if (error instanceof LockstepError || error instanceof RangeError) return undefined;
    throw error;
  }
}

/** Whether two answers have the same tensors with the same bits; NaN is a class in wide types. */
export function sameAnswer(a: Answer, b: Answer): boolean {
  const names = Object.keys(a);
  return (
    names.length === Object.keys(b).length &&
    names.every((name) => {
      const [x, y] = [a[name], b[name]];
      return x && y && x.dtype === y.dtype && x.codes.length === y.codes.length && !differenceOf(x, y);
    })
  );
}
