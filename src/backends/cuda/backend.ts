/** The CUDA backend. Its results are bitwise equal to the reference, unless `supports` says otherwise. */
import { libraryVersion } from "../../formats/chips.js";
import type { GemmAlgorithm } from "../../formats/gemm-algorithm.js";
import { integer } from "../../options.js";
import { checkedMemory, registerMemory } from "../../tensor/memory.js";
import { type Memory, withTemporary } from "../../tensor/storage.js";
import {
  type Backend,
  type CapturedWork,
  datapathName,
  EXACT,
  type MemoryUse,
  type Support,
  type Timeline,
} from "../backend.js";
import { requireReplayable } from "../captured.js";
import type { DeviceExchange } from "../exchange.js";
import type { GemmArgs } from "../ops/gemm.js";
import type { OpArgs, OpName } from "../ops.js";
import { registerRun, runChecked } from "../run.js";
import { writesNothing } from "../writes.js";
import {
  type Addon,
  type AddonExports,
  type DeviceFacts,
  type DeviceHandle,
  namingArguments,
} from "./addon.js";
import { NcclExchange } from "./collective/exchange.js";
import { libraryError } from "./failure.js";
import { algorithmFor, splitKFor } from "./gemm/gemm.js";
import { nativeFamily } from "./gemm/route.js";
import type { LoweringContext } from "./lowering.js";
import { LOWERINGS } from "./lowerings.gen.js";
import { DeviceMemory } from "./memory.js";

/** Options of the CUDA backend. */
export interface CudaOptions {
  /** The number of the GPU, counted from 0. Default 0. */
  readonly device?: number | undefined;
  /** The default datapath of matrix products. Default: the datapath of the GPU's tensor cores. */
  readonly datapath?: Backend["datapath"] | undefined;
}

/** Checks the number of a GPU. */
export const deviceNumber = integer(0, 2 ** 16);

/** Opens a GPU. Throws `ArgumentError` for an invalid number or an unknown datapath, `BackendError` if there is no such GPU. */
export function openCuda(exports: AddonExports, { device = 0, datapath }: CudaOptions = {}): Backend {
  if (datapath !== undefined) datapathName("openBackend", "datapath", datapath);
  deviceNumber("openBackend", "device", device);
  try {
    const handle = new exports.Device(device);
    return new CudaBackend(
      namingArguments(exports),
      handle,
      exports.devices()[device] as DeviceFacts,
      datapath,
    );
  } catch (error) {
    throw libraryError(error, () => 0);
  }
}

/** Formats a CUDA version: 13010 becomes 13.1. */
function versionText(version: number): string {
  return `${Math.floor(version / 1000)}.${Math.floor((version % 1000) / 10)}`;
}

class CudaBackend implements Backend {
  readonly name = "cuda";
  readonly description: string;
  /** The number of host threads. The threads of the GPU are not counted. */
  readonly threads = 1;
  readonly datapath: Backend["datapath"];
  readonly #memory: DeviceMemory;
  readonly timeline: Timeline;
  readonly exchange: DeviceExchange;
  readonly #addon: Addon;
  readonly #device: DeviceHandle;
  readonly #context: LoweringContext;
  /** Whether work is enqueued on the side stream. */
  #isAside = false;

  constructor(addon: Addon, device: DeviceHandle, facts: DeviceFacts, datapath?: Backend["datapath"]) {
    this.#addon = addon;
    this.#device = device;
    const memory = new DeviceMemory(addon, device);
    this.#memory = memory;
    registerMemory(this, memory);
    registerRun(
      this,
      (op, args) => this.#run(op, args),
      (op, list) => this.#runEach(op, list),
    );
    this.timeline = {
      mark: () => addon.mark(device),
      spans: () => addon.spans(device),
      waits: () => addon.waits(device),
    };
    this.exchange = new NcclExchange(addon, device, memory, facts.uuid);
    this.datapath = datapath ?? nativeFamily(facts);
    const { runtime, driver, cublasLt } = addon.versions();
    this.description = `${facts.name}, sm_${facts.major}${facts.minor}, CUDA ${versionText(runtime)} on driver ${versionText(driver)}, cuBLASLt ${libraryVersion(cublasLt)}`;
    this.#context = {
      addon,
      device,
      facts,
      withTemporary: (bytes, body) => withTemporary(memory, bytes, body),
    };
  }

  get memory(): Memory {
    return checkedMemory(this);
  }

  memoryUse(): MemoryUse {
    return this.#memory.use();
  }

  trim(): void {
    this.#memory.trim();
  }

  supports<K extends OpName>(op: K, args: OpArgs[K]): Support {
    const { supports } = LOWERINGS[op];
    if (!supports) return EXACT;
    try {
      return supports(args, this.#context);
    } catch (error) {
      throw libraryError(error, this.#memory.live);
    }
  }

  algorithmFor(args: GemmArgs): GemmAlgorithm | undefined {
    try {
      return algorithmFor(this.#context, args);
    } catch (error) {
      throw libraryError(error, this.#memory.live);
    }
  }

  splitKFor(args: GemmArgs): number {
    try {
      return splitKFor(this.#context, args);
    } catch (error) {
      throw libraryError(error, this.#memory.live);
    }
  }

  run<K extends OpName>(op: K, args: OpArgs[K]): void {
    runChecked(this, op, args);
  }

  #run<K extends OpName>(op: K, args: OpArgs[K]): void {
    try {
      if (writesNothing(op, args)) return;
      if (this.#memory.capturing) requireReplayable(op, args);
      LOWERINGS[op].run(this.#context, args);
    } catch (error) {
      throw libraryError(error, this.#memory.live);
    }
  }

  #runEach<K extends OpName>(op: K, list: readonly OpArgs[K][]): void {
    try {
      const { run, runEach } = LOWERINGS[op];
      const work = list.filter((args) => !writesNothing(op, args));
      if (work.length === 0) return;
      if (this.#memory.capturing) for (const args of work) requireReplayable(op, args);
      if (runEach) runEach(this.#context, work);
      else for (const args of work) run(this.#context, args);
    } catch (error) {
      throw libraryError(error, this.#memory.live);
    }
  }

  capture(body: () => void): CapturedWork {
    try {
      const { replay, dispose } = this.#memory.capture(body);
      return { replay: () => this.#translating(replay), dispose: () => this.#translating(dispose) };
    } catch (error) {
      throw libraryError(error, this.#memory.live);
    }
  }

  get isAside(): boolean {
    return this.#isAside;
  }

  onSideStream<R>(body: () => R): R {
    // captured work runs in one order, and work inside a side stream call is already on the side stream
    if (this.#memory.capturing || this.#isAside) return body();
    this.#translating(() => this.#addon.sideBegin(this.#device));
    this.#isAside = true;
    try {
      return body();
    } finally {
      this.#isAside = false;
      if (!this.#memory.closed) this.#translating(() => this.#addon.sideEnd(this.#device));
    }
  }

  #translating(enqueue: () => void): void {
    try {
      enqueue();
    } catch (error) {
      throw libraryError(error, this.#memory.live);
    }
  }

  async dispose(): Promise<void> {
    this.#memory.closed = true;
    this.#addon.close(this.#device);
  }
}
