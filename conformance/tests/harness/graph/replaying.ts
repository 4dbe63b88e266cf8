/** Whatever is run is captured and replayed: so that what holds of running holds of replaying. */
import type { Backend, CapturedWork } from "../../../../src/backends/backend.js";
import type { OpArgs, OpName } from "../../../../src/backends/ops.js";
import { UnsupportedError } from "../../../../src/errors.js";
import { PassingBackend } from "../../../operations/passing.js";

/** The work of `body`, on a backend that can capture. */
function captured(backend: Backend, body: () => void): CapturedWork {
  if (!backend.capture) throw new Error(`${backend.name} captures nothing`);
  return backend.capture(body);
}

/** Runs each operation on `inner` by a replay, but for those that are refused in a capture. */
export class ReplayingBackend extends PassingBackend {
  /** Operations that were replayed. */
  readonly replayed = new Set<OpName>();
  /** An operation may be composed of others. */
  #capturing = false;

  override run<K extends OpName>(op: K, args: OpArgs[K]): void {
    if (this.#capturing) {
      this.inner.run(op, args);
      return;
    }
    let work: CapturedWork;
    this.#capturing = true;
    try {
      work = captured(this.inner, () => this.inner.run(op, args));
    } catch (error) {
      if (!(error instanceof UnsupportedError)) throw error;
      this.inner.run(op, args);
      return;
    } finally {
      this.#capturing = false;
    }
    this.replayed.add(op);
    work.replay();
    work.dispose();
  }
}
