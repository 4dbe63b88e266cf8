/** The implementation of `noSync`: backward passes without the reduction of gradients over ranks. */
import { callable, requireSynchronous } from "../options.js";

/** Says whether backward passes reduce gradients: all passes except those inside `suspend`. */
export class Synchronization {
  #isOn = true;

  get isOn(): boolean {
    return this.#isOn;
  }

  /** Runs `body` without reducing gradients, as `noSync` of `DataParallel` and `FullySharded`. */
  suspend<R>(body: () => R): R {
    callable("noSync", "body", body);
    const wasOn = this.#isOn;
    this.#isOn = false;
    try {
      const result = body();
      requireSynchronous("noSync", result, "give a synchronous function");
      return result;
    } finally {
      this.#isOn = wasOn;
    }
  }
}
