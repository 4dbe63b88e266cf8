/**
 * One flow of calls in a program, which enters and leaves regions on demand. The code of the flow runs in the innermost region.
 */

/** An error that propagates out of this many regions. */
class RegionEscape extends Error {
  constructor(public levels: number) {
    super("thrown inside a region");
  }
}

interface Job {
  readonly done: () => void;
  readonly fail: (error: unknown) => void;
  readonly run?: () => void;
  /** Runs a body in a region. */
  readonly enter?: (body: () => Promise<void>) => Promise<void>;
  readonly leave?: { readonly throws: number };
}

export class Flow {
  readonly #jobs: Job[] = [];
  #wake: (() => void) | undefined;
  /** The job that leaves the innermost region. */
  #leaving: Job | undefined;
  readonly completion: Promise<void>;

  constructor() {
    this.completion = this.#serve();
  }

  /** Runs `body` in the innermost region of this flow. */
  run(body: () => void): Promise<void> {
    return this.#post({ run: body });
  }

  /** Enters a region; the flow stays in it until `leave`. */
  enter(region: (body: () => Promise<void>) => Promise<void>): Promise<void> {
    return this.#post({ enter: region });
  }

  leave(): Promise<void> {
    return this.#post({ leave: { throws: 0 } });
  }

  /** Throws an error out of this many regions. */
  escape(levels: number): Promise<void> {
    return this.#post({ leave: { throws: levels } });
  }

  #post(job: Omit<Job, "done" | "fail">): Promise<void> {
    return new Promise((done, fail) => {
      this.#jobs.push({ ...job, done, fail });
      this.#wake?.();
    });
  }

  async #next(): Promise<Job> {
    while (this.#jobs.length === 0) {
      await new Promise<void>((wake) => {
        this.#wake = wake;
      });
    }
    return this.#jobs.shift() as Job;
  }

  async #serve(): Promise<void> {
    for (;;) {
      const job = await this.#next();
      const { done, fail, run, enter, leave } = job;
      if (leave) {
        this.#leaving = job;
        if (leave.throws > 0) throw new RegionEscape(leave.throws);
        return;
      }
      try {
        run?.();
        if (enter) await this.#runRegion(enter, done);
        else done();
      } catch (error) {
        if (error instanceof RegionEscape) throw error;
        fail(error);
      }
    }
  }

  async #runRegion(enter: NonNullable<Job["enter"]>, entered: () => void): Promise<void> {
    try {
      await enter(() => {
        entered();
        return this.#serve();
      });
    } catch (error) {
      if (!(error instanceof RegionEscape)) {
        this.#leaving?.fail(error);
        throw error;
      }
      if (--error.levels > 0) throw error;
    }
    this.#leaving?.done();
  }
}
