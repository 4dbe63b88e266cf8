/** Writes tensors of the output sequentially. */
import type { PutTensor, TensorPlan } from "../../io/header/header.js";

/** Appends bytes to tensors, and keeps the current position of each tensor. */
export class TensorAppender {
  readonly #at = new Map<string, number>();

  /** `onBytes` is called with the number of bytes of each write. */
  constructor(
    private readonly put: PutTensor,
    private readonly onBytes: (count: number) => void,
  ) {}

  /** Writes the next bytes of a tensor. */
  async append({ name }: TensorPlan, bytes: Uint8Array): Promise<void> {
    const offset = this.#at.get(name) ?? 0;
    await this.put(name, bytes, offset);
    this.#at.set(name, offset + bytes.length);
    this.onBytes(bytes.length);
  }
}
