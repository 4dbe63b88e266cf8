/** How often a subject is asked while a counterexample is made simpler. */

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

/** Inputs that are simpler than one, the simplest first. */
export type Simpler<C> = (input: C) => Iterable<C>;

/** Replaces an input by the first simpler one that fails, until none does or the budget is spent. */
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
