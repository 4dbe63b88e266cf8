/** Faults that a rank can have (`ranks/rank.mjs fault NAME`), and the errors that the other ranks then throw. */
export interface Fault {
  readonly failure: string;
  /** The operation during which the fault occurs. Default allReduce. */
  readonly operation?: string;
}

export const FAULTS: Readonly<Record<string, Fault>> = {
  killed: { failure: "lost" },
  throws: { failure: "lost" },
  exits: { failure: "lost" },
  leaves: { failure: "lost" },
  sleeps: { failure: "deadline" },
  aborts: { failure: "aborted" },
  shape: { failure: "disagreement" },
  dtype: { failure: "disagreement" },
  plan: { failure: "disagreement" },
  order: { failure: "disagreement" },
  message: { failure: "disagreement" },
  rows: { failure: "disagreement", operation: "allToAll" },
};

/** The faults of a rank whose operations are enqueued. */
export const DEVICE_FAULTS: Readonly<Record<string, Fault>> = {
  ...FAULTS,
  aside: { failure: "disagreement" },
};
