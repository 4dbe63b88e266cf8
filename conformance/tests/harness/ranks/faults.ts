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

/**
 * Jobs of `size` ranks whose operations are enqueued on the main stream and on the side stream: a fault, the name of the stream,
 * and the rank that has the fault.
 */
export function deviceFaults(size: number) {
  const faults: Readonly<Record<string, Fault>> = { ...FAULTS, aside: { failure: "disagreement" } };
  return Object.entries(faults).flatMap(([name, fault], i) => [
    [name, "", i % size, fault] as const,
    [name, "on the side stream", (i + 1) % size, fault] as const,
  ]);
}
