/** Exchange of device memory between ranks by NCCL, one GPU per rank (native/collective). */
import { WIDE } from "../../../formats/contract.gen.js";
import type { WideDType } from "../../../tensor/shape.js";
import { waits } from "../../captured.js";
import type { DeviceEnd, DeviceExchange, DeviceRanks, ExchangePlace, FoldArgs } from "../../exchange.js";
import type { Addon, DeviceHandle } from "../addon.js";
import { libraryError } from "../failure.js";
import type { DeviceMemory } from "../memory.js";

/** Formats a version of NCCL: 22707 becomes 2.27.7. */
function versionText(version: number): string {
  return [Math.floor(version / 10000), Math.floor(version / 100) % 100, version % 100].join(".");
}

export class NcclExchange implements DeviceExchange {
  constructor(
    private readonly addon: Addon,
    private readonly handle: DeviceHandle,
    private readonly memory: DeviceMemory,
    readonly device: string,
  ) {}

  library(): string {
    return this.#translating(() => `NCCL ${versionText(this.addon.ncclVersion())}`);
  }

  invite(): Uint8Array {
    return this.#translating(() => this.addon.ncclId());
  }

  open(place: ExchangePlace): DeviceRanks {
    const { invitation, rank, size, failed, timeoutMs, check } = place;
    const comm = this.#translating(() =>
      this.addon.ncclOpen(this.handle, invitation, rank, size, failed, timeoutMs),
    );
    return new NcclRanks(this.addon, this.handle, this.memory, comm, check);
  }

  #translating<T>(body: () => T): T {
    try {
      return body();
    } catch (error) {
      throw libraryError(error, this.memory.live);
    }
  }
}

class NcclRanks implements DeviceRanks {
  constructor(
    private readonly addon: Addon,
    private readonly handle: DeviceHandle,
    private readonly memory: DeviceMemory,
    private readonly comm: number,
    private readonly check: () => void,
  ) {
    memory.checks.add(check);
  }

  requireRunning(): void {
    if (this.memory.capturing) throw waits("ranks exchange");
  }

  begin(): void {
    this.#call(() => this.addon.ncclBegin(this.handle, { comm: this.comm }));
  }

  end(): void {
    this.#call(() => this.addon.ncclEnd(this.handle, { comm: this.comm }));
  }

  send(x: number, bytes: number, peer: number): void {
    this.#call(() => this.addon.ncclSend(this.handle, { comm: this.comm, x, bytes, peer }));
  }

  receive(out: number, bytes: number, peer: number): void {
    this.#call(() => this.addon.ncclReceive(this.handle, { comm: this.comm, out, bytes, peer }));
  }

  exchange(): void {
    this.#call(() => this.addon.ncclExchange(this.handle, { comm: this.comm }));
  }

  allGather(x: number, out: number, bytes: number): void {
    this.#call(() => this.addon.ncclAllGather(this.handle, { comm: this.comm, x, out, bytes }));
  }

  reduceScatter(x: number, out: number, count: number, dtype: WideDType): void {
    this.#call(() =>
      this.addon.ncclReduceScatter(this.handle, { comm: this.comm, x, out, type: WIDE[dtype], count }),
    );
  }

  broadcast(x: number, out: number, bytes: number, root: number): void {
    this.#call(() => this.addon.ncclBroadcast(this.handle, { comm: this.comm, x, out, bytes, root }));
  }

  fold({ parts, stride, own, ranks, dtype, sum, factor, out, count }: FoldArgs): void {
    this.#call(() =>
      this.addon.fold(this.handle, {
        parts: { address: parts },
        stride,
        own,
        ownAt: own?.at,
        ranks,
        type: WIDE[dtype],
        sumType: WIDE[sum ?? "f32"],
        maximum: sum === undefined,
        factor,
        out: { address: out },
        count,
      }),
    );
  }

  ended(): DeviceEnd | undefined {
    return this.addon.ncclState(this.handle, this.comm);
  }

  close(inOrder: boolean): void {
    this.memory.checks.delete(this.check);
    this.#call(() => this.addon.ncclClose(this.handle, this.comm, inOrder));
  }

  #call(body: () => void): void {
    try {
      body();
    } catch (error) {
      throw libraryError(error, this.memory.live);
    }
  }
}
