/** Work of the reference that is captured: operations and copies in their order, and the memory that they use. */
import type { CapturedWork } from "../backend.js";
import { HeldMemory, withOwnTensors } from "../captured.js";

/** Tasks to be done again. What they use is held until `dispose`. */
export class Recording implements CapturedWork {
  readonly memory = new HeldMemory();
  readonly #tasks: (() => void)[] = [];
  readonly #handles: { dispose(): void }[] = [];

  add(task: () => void): void {
    this.#tasks.push(task);
  }

  /** A task on arguments whose tensors the caller may dispose of. */
  addOn<A>(given: A, task: (args: A) => void): void {
    const { args, tensors } = withOwnTensors(given);
    this.#handles.push(...tensors);
    this.add(() => task(args));
  }

  replay(): void {
    for (const task of this.#tasks) task();
  }

  dispose(): void {
    this.#tasks.length = 0;
    for (const handle of this.#handles.splice(0)) handle.dispose();
    this.memory.release();
  }
}
