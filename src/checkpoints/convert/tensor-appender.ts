/** Writes tensors of the output sequentially. */
import type { TensorPlan } from "../../io/header/header.js";
import type { PutTensor } from "../../io/safetensors-writer.js";

/** Appends bytes to tensors; keeps the position in each. */
export class TensorAppender {
  readonly #at = new Map<string, number>();

  /** `onBytes` is called with the bytes that have been written. */
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
