/** Whether backward passes reduce gradients over ranks. */
import { callable, requireSynchronous } from "../options.js";

/** Backward passes reduce gradients, but for those that run inside `suspended`. */
export class Synchronization {
  #isOn = true;

  get isOn(): boolean {
    return this.#isOn;
  }

  /** `noSync` of the classes that reduce gradients. */
  suspended<R>(body: () => R): R {
    callable("noSync", "body", body);
    const before = this.#isOn;
    this.#isOn = false;
    try {
      const result = body();
      requireSynchronous("noSync", result, "give a function that does not wait");
      return result;
    } finally {
      this.#isOn = before;
    }
  }
}
