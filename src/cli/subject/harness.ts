/** The conformance suite, loaded by commands on demand. */
export type Harness = typeof import("lockstep/conformance");
