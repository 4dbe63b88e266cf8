/** What a suspect is: a mistake that a kernel may have made, and the answer that it gives then. */
import type { Answer } from "../../operations/operation.js";
import type { Cases, OperationName } from "../../operations/operations.js";

/** What a subject answered to an input, and what is right. */
export interface Evidence<C> {
  readonly input: C;
  readonly actual: Answer;
  readonly expected: Answer;
}

/** Computes right answers. */
export type Right<K extends OperationName> = (input: Cases[K]) => Promise<Answer>;

/** An answer, or undefined for an input of which nothing can be told. */
export type MaybeAnswer = Answer | undefined | Promise<Answer | undefined>;

/** A mistake whose whole answer follows from right answers. */
export interface Suspect<K extends OperationName> {
  /** The mistake, in words. */
  readonly words: string;
  /** The answer of a kernel with this mistake. */
  readonly answer: (input: Cases[K], right: Right<K>, expected: Answer) => MaybeAnswer;
}

/** A mistake that explains evidence: what a kernel with it answers, which is what the subject answered. */
export interface Explanation<C> {
  /** The mistake, in words. */
  readonly words: string;
  /** The answer of a kernel with this mistake to an input whose right answer is `expected`. */
  readonly answer: (each: Pick<Evidence<C>, "input" | "expected">) => MaybeAnswer;
}

/** What evidence says: mistakes that explain every bit of it, or what is wrong where none does. */
export interface Naming<C> {
  readonly mistakes: readonly Explanation<C>[];
  /** Facts, and mistakes that explain a part, with how much of it. Empty if there are mistakes. */
  readonly observations: readonly string[];
}
