/** A third-party backend that uses only the published types: it forwards everything and logs the operations. */
import type { Backend, GemmAlgorithm, GemmArgs, Memory, MemoryUse, OpArgs, OpName, Support } from "lockstep";

export class LoggingBackend implements Backend {
  readonly name = "logging";
  readonly description: string;
  readonly threads: number;
  readonly datapath: Backend["datapath"];
  readonly memory: Memory;
  /** The names of the operations that ran, and the sizes of reads in bytes. */
  readonly log: string[] = [];

  constructor(
    readonly inner: Backend,
    /** The operations that it does not support. */
    readonly unsupported: readonly OpName[] = [],
  ) {
    this.description = `logging around ${inner.description}`;
    this.threads = inner.threads;
    this.datapath = inner.datapath;
    this.memory = logReads(inner.memory, this.log);
  }

  memoryUse(): MemoryUse {
    return this.inner.memoryUse();
  }

  trim(): void {
    this.inner.trim();
  }

  supports<K extends OpName>(op: K, args: OpArgs[K]): Support {
    if (this.unsupported.includes(op)) return { ok: false, reason: "the logging backend leaves it out" };
    return this.inner.supports(op, args);
  }

  run<K extends OpName>(op: K, args: OpArgs[K]): void {
    this.log.push(op);
    this.inner.run(op, args);
  }

  algorithmFor(args: GemmArgs): GemmAlgorithm | undefined {
    return this.inner.algorithmFor?.(args);
  }

  splitKFor(args: GemmArgs): number {
    return this.inner.splitKFor?.(args) ?? (args.splitK === "auto" ? 1 : args.splitK);
  }

  dispose(): Promise<void> {
    return this.inner.dispose();
  }
}

function logReads(inner: Memory, log: string[]): Memory {
  return {
    get closed() {
      return inner.closed ?? false;
    },
    allocate: (bytes) => inner.allocate(bytes),
    free: (address) => inner.free(address),
    write: (address, bytes) => inner.write(address, bytes),
    copy: (to, from, bytes) => inner.copy(to, from, bytes),
    read: (address, bytes) => inner.read(address, bytes),
    readSync(address, bytes) {
      log.push(`read ${bytes}`);
      return inner.readSync(address, bytes);
    },
  };
}
