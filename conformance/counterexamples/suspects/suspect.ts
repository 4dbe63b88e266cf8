/** The type of a suspect: a mistake that a kernel may have, and the answer that it would give. */
import type { Answer } from "../../operations/operation.js";
import type { Cases, OperationName } from "../../operations/operations.js";

/** A subject's answer to an input, and the expected one. */
export interface Evidence<C> {
  readonly input: C;
  readonly actual: Answer;
  readonly expected: Answer;
}

/** Computes correct answers. */
export type Right<K extends OperationName> = (input: Cases[K]) => Promise<Answer>;

/** An answer, or undefined if the mistake predicts none for this input. */
export type MaybeAnswer = Answer | undefined | Promise<Answer | undefined>;

/** A mistake that changes the whole answer in a way computed from correct answers. */
export interface Suspect<K extends OperationName> {
  /** The mistake, in words. */
  readonly words: string;
  /** The answer of a kernel with this mistake. */
  readonly answer: (input: Cases[K], right: Right<K>, expected: Answer) => MaybeAnswer;
}

/** A mistake that explains evidence: a kernel with it gives the subject's answers. */
export interface Explanation<C> {
  /** The mistake, in words. */
  readonly words: string;
  /** The answer of a kernel with this mistake to an input whose correct answer is `expected`. */
  readonly answer: (each: Pick<Evidence<C>, "input" | "expected">) => MaybeAnswer;
}

/** The result of a diagnosis: mistakes that explain every bit of the evidence, or facts if there are none. */
export interface Naming<C> {
  readonly mistakes: readonly Explanation<C>[];
  /** Facts, and mistakes that explain a part of the wrong bits, with the size of that part. Empty if there are mistakes. */
  readonly observations: readonly string[];
}
