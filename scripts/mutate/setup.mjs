/** A counterexample is enough to kill a mutant; a smaller one is not looked for. */
import fc from "fast-check";

fc.configureGlobal({ endOnFailure: true });
