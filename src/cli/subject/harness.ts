/** The conformance suite, which commands load when they need it. */
export type Harness = typeof import("lockstep/conformance");
