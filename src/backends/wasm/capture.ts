/** Graph capture on the reference: a list of operations and copies, and the memory that they use. */
import type { CapturedWork } from "../backend.js";
import { HeldMemory, withOwnTensors } from "../captured.js";

/** The recorded tasks. The memory that they use stays allocated until `dispose`. */
export class Recording implements CapturedWork {
  readonly memory = new HeldMemory();
  readonly #tasks: (() => void)[] = [];
  readonly #handles: { dispose(): void }[] = [];

  add(task: () => void): void {
    this.#tasks.push(task);
  }

  /** Adds a task and its arguments. The caller may dispose of the tensors among the arguments. */
  addOn<A>(callArgs: A, task: (args: A) => void): void {
    const { args, tensors } = withOwnTensors(callArgs);
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
