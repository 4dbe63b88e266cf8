/** Scopes for engines without `using`: equivalent to `using scope = new Scope()`. */
import { Scope } from "lockstep";

/** Runs `body` and disposes of the tensors that it created. */
export function within(body) {
  const scope = new Scope();
  try {
    return body();
  } finally {
    scope.dispose();
  }
}
