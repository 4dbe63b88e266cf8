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

/** A mistake whose whole answer follows from right answers. */
export interface Suspect<K extends OperationName> {
  /** The mistake, in words. */
  readonly words: string;
  /** The answer of a kernel with this mistake. Undefined for an input of which nothing can be told. */
  readonly answer: (
    input: Cases[K],
    right: Right<K>,
    expected: Answer,
  ) => Answer | undefined | Promise<Answer | undefined>;
}
