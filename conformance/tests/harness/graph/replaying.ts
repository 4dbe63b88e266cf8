/** A backend that captures every operation as a graph and replays it, so that all laws also test replay. */
import type { Backend, CapturedWork } from "../../../../src/backends/backend.js";
import type { OpArgs, OpName } from "../../../../src/backends/ops.js";
import { UnsupportedError } from "../../../../src/errors.js";
import { PassingBackend } from "../../../operations/passing.js";

/** Captures the work of `body`. */
function captureWork(backend: Backend, body: () => void): CapturedWork {
  if (!backend.capture) throw new Error(`${backend.name} captures nothing`);
  return backend.capture(body);
}

/** Runs each operation on `inner` by capturing and replaying it, except operations that cannot be captured. */
export class ReplayingBackend extends PassingBackend {
  /** The operations that were replayed. */
  readonly replayed = new Set<OpName>();
  /** Whether a capture is in progress. An operation that calls other operations is captured with them. */
  #capturing = false;

  override run<K extends OpName>(op: K, args: OpArgs[K]): void {
    if (this.#capturing) {
      this.inner.run(op, args);
      return;
    }
    let work: CapturedWork;
    this.#capturing = true;
    try {
      work = captureWork(this.inner, () => this.inner.run(op, args));
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
