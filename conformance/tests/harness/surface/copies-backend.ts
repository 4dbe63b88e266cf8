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
import { RecordingBackend } from "./asked-backend.js";

/** A copy, or codes derived from one by a transposition, a gather or a clone. */
interface TracedCodes {
  /** The direction and shape of the codes, and the operation that created them. */
  readonly description: string;
  /** The codes from which these codes were derived. */
  readonly sources: readonly TracedCodes[];
  isRead: boolean;
}

/** The operations that read codes to compute values instead of other codes. */
const READERS: readonly OpName[] = ["gemm", "dequantize"];

export class CopiesBackend extends RecordingBackend {
  override readonly memory: Memory;
  /** Violations so far: copies that were not read, or were created twice. */
  readonly #faults: string[] = [];
  /** The number of copies that quantizations created. */
  createdCopies = 0;
  /** The copies that products have not read yet. */
  readonly #unreadCopies = new Map<number, TracedCodes>();
  /** How often each address was written. */
  readonly #versions = new Map<number, number>();
  readonly #sources = new Set<string>();

  constructor(inner: Backend) {
    super(inner);
    this.memory = this.#traceMemory(inner.memory);
  }

  /** Starts a run: tensors that an earlier run quantized may be quantized again. */
  begin(): void {
    this.#sources.clear();
  }

  /** Ends the trace: the remaining copies must have been read. Returns the violations. */
  finish(): readonly string[] {
    for (const address of [...this.#unreadCopies.keys()]) this.#endTrace(address, "at the end");
    return this.#faults;
  }

  /** Declares the copies of a tensor to be results that the caller requested. */
  asResult(members: readonly Tensor[]): void {
    for (const { address } of members) markRead(this.#unreadCopies.get(address));
  }

  override run<K extends OpName>(op: K, args: OpArgs[K]): void {
    const fields: Readonly<Record<string, unknown>> = { ...args };
    const rows = TENSOR_ROWS.get(op) as readonly TensorRow[];
    const reads = rows.filter(({ written }) => !written).flatMap(({ name }) => argumentTensors(fields[name]));
    const sources = reads.flatMap(({ address }) => this.#unreadCopies.get(address) ?? []);
    if (READERS.includes(op)) for (const source of sources) markRead(source);
    const state = reads.map(({ address }) => `${address}.${this.#versions.get(address) ?? 0}`).join(" ");
    for (const { name, written } of rows) {
      if (!written) break;
      const copy = fields[name];
      if (isCopy(copy)) this.#traceQuantization(op, copy, { state, noop: fields.noop !== undefined });
      else for (const { address } of argumentTensors(copy)) this.#traceWrite(address, op, sources);
    }
    super.run(op, args);
  }

  #traceQuantization(
    op: OpName,
    copy: QuantizedCopy,
    { state, noop }: { state: string; noop: boolean },
  ): void {
    const { data, geometry } = copy;
    const description = `${geometry.direction} ${data.dtype} [${data.shape}] by ${op}`;
    const source = `${geometry.direction} ${data.dtype} of ${op} ${state}`;
    if (this.#sources.has(source)) this.#faults.push(`${description} is made twice`);
    this.#sources.add(source);
    this.createdCopies++;
    const previousCopy = this.#unreadCopies.get(data.address);
    // with a noop flag the target may keep its earlier copy
    if (!noop) this.#endTrace(data.address, "when it is overwritten");
    this.#countWrite(data.address);
    this.#unreadCopies.set(data.address, {
      description,
      sources: noop && previousCopy ? [previousCopy] : [],
      isRead: false,
    });
  }

  #traceWrite(address: number, op: string, sources: readonly TracedCodes[]): void {
    this.#endTrace(address, "when it is overwritten");
    this.#countWrite(address);
    if (sources.length > 0 && !READERS.includes(op as OpName))
      this.#unreadCopies.set(address, {
        description: `${op} of ${sources.map(({ description }) => description)}`,
        sources,
        isRead: false,
      });
  }

  #countWrite(address: number): void {
    this.#versions.set(address, (this.#versions.get(address) ?? 0) + 1);
  }

  #endTrace(address: number, moment: string): void {
    const traced = this.#unreadCopies.get(address);
    if (!traced) return;
    this.#unreadCopies.delete(address);
    if (!traced.isRead) this.#faults.push(`${traced.description} is not read ${moment}`);
  }

  #traceMemory(inner: Memory): Memory {
    const traceCopy = (to: number, from?: number): void => {
      const source = from === undefined ? undefined : this.#unreadCopies.get(from);
      this.#traceWrite(to, "copy", source ? [source] : []);
    };
    return {
      get closed() {
        return inner.closed ?? false;
      },
      allocate: (bytes) => {
        const address = inner.allocate(bytes);
        this.#countWrite(address);
        return address;
      },
      free: (address) => {
        this.#endTrace(address, "before it is freed");
        inner.free(address);
      },
      write(address, bytes) {
        traceCopy(address);
        inner.write(address, bytes);
      },
      copy(to, from, bytes) {
        traceCopy(to, from);
        inner.copy(to, from, bytes);
      },
      read: (address, bytes) => inner.read(address, bytes),
      // other ranks read what this rank sends
      readSync: (address, bytes) => {
        markRead(this.#unreadCopies.get(address));
        return inner.readSync(address, bytes);
      },
    };
  }
}

function markRead(traced: TracedCodes | undefined): void {
  if (!traced || traced.isRead) return;
  traced.isRead = true;
  for (const source of traced.sources) markRead(source);
}

function isCopy(value: unknown): value is QuantizedCopy {
  if (typeof value !== "object" || value === null || !("geometry" in value)) return false;
  const { direction } = value.geometry as QuantizedCopy["geometry"];
  return DIRECTIONS.includes(direction);
}

/** The tensor of an argument: itself, the codes of a copy, or the elements of an operand. */
function argumentTensors(value: unknown): readonly Tensor[] {
  if (value instanceof Tensor) return [value];
  if (typeof value !== "object" || value === null || !("data" in value)) return [];
  return value.data instanceof Tensor ? [value.data] : [];
}
