/** Memory by blocks: what `using scope = new Scope()` does where `using` is not yet spoken. */
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
