/** Memory in scopes: what `using scope = new Scope()` does, for engines without `using`. */
import { Scope } from "lockstep";

/** Runs `body` and frees the tensors it made. */
export function within(body) {
  const scope = new Scope();
  try {
    return body();
  } finally {
    scope.dispose();
  }
}
