/**
 * A backend that computes nothing and traces the copies of quantized tensors: which operation creates a copy, and whether a
 * product reads it before it is overwritten or freed.
 */
import type { Backend } from "../../../../src/backends/backend.js";
import type { OpArgs, OpName } from "../../../../src/backends/ops.js";
import { TENSOR_ROWS, type TensorRow } from "../../../../src/backends/writes.js";
import { DIRECTIONS, type QuantizedCopy } from "../../../../src/tensor/quantized.js";
import type { Memory } from "../../../../src/tensor/storage.js";
import { Tensor } from "../../../../src/tensor/tensor.js";
import { AskedBackend } from "./asked-backend.js";

/** A copy, or codes derived from one by a transposition, a gather or a clone. */
interface Traced {
  /** The operation that created it, its direction and shape. */
  readonly text: string;
  /** The codes that it was derived from. */
  readonly from: readonly Traced[];
  read: boolean;
}

/** The operations that read codes to compute values instead of other codes. */
const READERS: readonly OpName[] = ["gemm", "dequantize"];

export class CopiesBackend extends AskedBackend {
  override readonly memory: Memory;
  /** Violations so far: copies that were not read, or were created twice. */
  readonly #faults: string[] = [];
  /** The number of copies that quantizations created. */
  created = 0;
  /** The copies that products have not read yet. */
  readonly #live = new Map<number, Traced>();
  /** How often each address was written. */
  readonly #versions = new Map<number, number>();
  readonly #sources = new Set<string>();

  constructor(inner: Backend) {
    super(inner);
    this.memory = this.#traced(inner.memory);
  }

  /** Starts a run: tensors that an earlier run quantized may be quantized again. */
  begin(): void {
    this.#sources.clear();
  }

  /** Ends the trace: the remaining copies must have been read. Returns the violations. */
  finish(): readonly string[] {
    for (const address of [...this.#live.keys()]) this.#end(address, "at the end");
    return this.#faults;
  }

  /** Declares the copies of a tensor to be results that the caller requested. */
  asResult(members: readonly Tensor[]): void {
    for (const { address } of members) markRead(this.#live.get(address));
  }

  override run<K extends OpName>(op: K, args: OpArgs[K]): void {
    const fields: Readonly<Record<string, unknown>> = { ...args };
    const rows = TENSOR_ROWS.get(op) as readonly TensorRow[];
    const reads = rows.filter(({ written }) => !written).flatMap(({ name }) => codesOf(fields[name]));
    const sources = reads.flatMap(({ address }) => this.#live.get(address) ?? []);
    if (READERS.includes(op)) for (const each of sources) markRead(each);
    const state = reads.map(({ address }) => `${address}.${this.#versions.get(address) ?? 0}`).join(" ");
    for (const { name, written } of rows) {
      if (!written) break;
      const copy = fields[name];
      if (isCopy(copy)) this.#quantized(op, copy, { state, noop: fields.noop !== undefined });
      else for (const { address } of codesOf(copy)) this.#written(address, op, sources);
    }
    super.run(op, args);
  }

  #quantized(op: OpName, copy: QuantizedCopy, { state, noop }: { state: string; noop: boolean }): void {
    const { data, geometry } = copy;
    const text = `${geometry.direction} ${data.dtype} [${data.shape}] by ${op}`;
    const source = `${geometry.direction} ${data.dtype} of ${op} ${state}`;
    if (this.#sources.has(source)) this.#faults.push(`${text} is made twice`);
    this.#sources.add(source);
    this.created++;
    const before = this.#live.get(data.address);
    // with a noop flag the target may keep its earlier copy
    if (!noop) this.#end(data.address, "when it is overwritten");
    this.#bump(data.address);
    this.#live.set(data.address, { text, from: noop && before ? [before] : [], read: false });
  }

  #written(address: number, op: string, sources: readonly Traced[]): void {
    this.#end(address, "when it is overwritten");
    this.#bump(address);
    if (sources.length > 0 && !READERS.includes(op as OpName))
      this.#live.set(address, {
        text: `${op} of ${sources.map(({ text }) => text)}`,
        from: sources,
        read: false,
      });
  }

  #bump(address: number): void {
    this.#versions.set(address, (this.#versions.get(address) ?? 0) + 1);
  }

  #end(address: number, when: string): void {
    const traced = this.#live.get(address);
    if (!traced) return;
    this.#live.delete(address);
    if (!traced.read) this.#faults.push(`${traced.text} is not read ${when}`);
  }

  #traced(inner: Memory): Memory {
    const written = (to: number, from?: number): void => {
      const source = from === undefined ? undefined : this.#live.get(from);
      this.#written(to, "copy", source ? [source] : []);
    };
    return {
      get closed() {
        return inner.closed ?? false;
      },
      allocate: (bytes) => {
        const address = inner.allocate(bytes);
        this.#bump(address);
        return address;
      },
      free: (address) => {
        this.#end(address, "before it is freed");
        inner.free(address);
      },
      write(address, bytes) {
        written(address);
        inner.write(address, bytes);
      },
      copy(to, from, bytes) {
        written(to, from);
        inner.copy(to, from, bytes);
      },
      read: (address, bytes) => inner.read(address, bytes),
      // other ranks read what this rank sends
      readSync: (address, bytes) => {
        markRead(this.#live.get(address));
        return inner.readSync(address, bytes);
      },
    };
  }
}

function markRead(traced: Traced | undefined): void {
  if (!traced || traced.read) return;
  traced.read = true;
  for (const each of traced.from) markRead(each);
}

function isCopy(value: unknown): value is QuantizedCopy {
  if (typeof value !== "object" || value === null || !("geometry" in value)) return false;
  const { direction } = value.geometry as QuantizedCopy["geometry"];
  return DIRECTIONS.includes(direction);
}

/** The tensor of an argument: itself, the codes of a copy, or the elements of an operand. */
function codesOf(value: unknown): readonly Tensor[] {
  if (value instanceof Tensor) return [value];
  if (typeof value !== "object" || value === null || !("data" in value)) return [];
  return value.data instanceof Tensor ? [value.data] : [];
}
