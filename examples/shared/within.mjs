/** Scopes for engines without `using`: does what `using scope = new Scope()` does. */
import { Scope } from "lockstep";

/** Runs `body` and disposes of the tensors that it made. */
export function within(body) {
  const scope = new Scope();
  try {
    return body();
  } finally {
    scope.dispose();
  }
}
