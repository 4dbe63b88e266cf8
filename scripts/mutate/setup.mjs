/** Configures fast-check not to shrink: any counterexample kills a mutant. */
import fc from "fast-check";

fc.configureGlobal({ endOnFailure: true });
