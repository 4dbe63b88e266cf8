/** Limits the questions to a subject while a counterexample is simplified. */

/** Whether an input still fails. */
export type Fails<C> = (input: C) => Promise<boolean>;

/** Counts questions and time. */
export class Budget {
  #asked = 0;
  readonly #end: number;

  constructor(
    private readonly questions: number,
    milliseconds: number,
  ) {
    this.#end = Date.now() + milliseconds;
  }

  /** Whether one more question may be asked. */
  get isLeft(): boolean {
    return this.#asked < this.questions && Date.now() < this.#end;
  }

  /** Counts a question. */
  spend(): void {
    this.#asked++;
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
    let found: C | undefined;
    for (const candidate of simpler(current)) {
      if (!budget.isLeft) return current;
      budget.spend();
      if (!(await fails(candidate))) continue;
      found = candidate;
      break;
    }
    if (found === undefined) return current;
    current = found;
  }
}
