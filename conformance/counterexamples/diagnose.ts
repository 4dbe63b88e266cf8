/** Names what a subject does wrong: the suspects that explain every bit of its answers, right ones included. */
import { UnsupportedError } from "../../src/errors.js";
import type { Answer } from "../operations/operation.js";
import type { Cases, OperationName } from "../operations/operations.js";
import type { QuantizeCase } from "../operations/quantize/quantize.js";
import { differenceOf } from "../values/difference.js";
import { ANSWER_SUSPECTS } from "./suspects/answers.js";
import { nameQuantization, wrongDirection } from "./suspects/quantize.js";
import type { Evidence, Right } from "./suspects/suspect.js";

/** How many explanations are named where they cannot be told apart. */
const MOST = 3;

/** Names of mistakes, the likely ones first; several where the answers do not tell them apart. */
export async function named<K extends OperationName>(
  operation: K,
  evidence: readonly Evidence<Cases[K]>[],
  right: Right<K>,
): Promise<readonly string[]> {
  const found: string[] = [];
  for (const { words, answer } of ANSWER_SUSPECTS[operation] ?? []) {
    if (await explainsAll(evidence, (each) => answer(each.input, right, each.expected))) found.push(words);
    if (found.length >= MOST) return found;
  }
  if (operation !== "quantize") return found;
  return [
    ...found,
    ...namedQuantization(evidence as readonly Evidence<QuantizeCase>[], found.length > 0),
  ].slice(0, MOST);
}

function namedQuantization(evidence: readonly Evidence<QuantizeCase>[], isNamed: boolean): readonly string[] {
  const [first] = evidence;
  const direction = first && wrongDirection(first);
  if (!direction) return [];
  const names = nameQuantization(evidence, direction);
  return isNamed ? names.filter((words) => !/^(scales are wrong|nearly)/.test(words)) : names;
}

/** Whether a suspect explains the first answer, which is wrong, and every other that it has an answer for. */
async function explainsAll<C>(
  evidence: readonly Evidence<C>[],
  answer: (each: Evidence<C>) => Answer | undefined | Promise<Answer | undefined>,
): Promise<boolean> {
  for (const [i, each] of evidence.entries()) {
    const made = await answerOf(each, answer);
    if (made ? !sameAnswer(made, each.actual) : i === 0) return false;
  }
  return evidence.length > 0;
}

/** A suspect's answer. Undefined where the changed input is none that the operation takes. */
async function answerOf<C>(
  each: Evidence<C>,
  answer: (each: Evidence<C>) => Answer | undefined | Promise<Answer | undefined>,
): Promise<Answer | undefined> {
  try {
    return await answer(each);
  } catch (error) {
    if (error instanceof UnsupportedError || error instanceof RangeError) return undefined;
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
