/** Limits the questions to a subject while a counterexample is simplified. */

/** Whether an input still fails. */
export type Fails<C> = (input: C) => Promise<boolean>;

/** Counts questions and time. */
export class Budget {
  #questions = 0;
  readonly #end: number;

  constructor(
    private readonly questions: number,
    milliseconds: number,
  ) {
    this.#end = Date.now() + milliseconds;
  }

  /** Whether one more question may be asked. */
  get isLeft(): boolean {
    return this.#questions < this.questions && Date.now() < this.#end;
  }

  /** Counts a question. */
  spend(): void {
    this.#questions++;
  }
}

/** Yields inputs that are simpler, the simplest first. */
export type Simpler<C> = (input: C) => Iterable<C>;

/** Replaces an input by the first simpler one that fails, until none fails or the budget is used up. */
export async function simplest<C>(
  input: C,
  simpler: Simpler<C>,
  fails: Fails<C>,
  budget: Budget,
): Promise<C> {
  let current = input;
  for (;;) {
    let next: C | undefined;
    for (const candidate of simpler(current)) {
      if (!budget.isLeft) return current;
      budget.spend();
      if (!(await fails(candidate))) continue;
      next = candidate;
      break;
    }
    if (next === undefined) return current;
    current = next;
  }
}
