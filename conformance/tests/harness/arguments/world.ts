/**
 * The environment of the tested calls: tensors with known bytes, canaries between them, and all state that a refused
 * call may not change.
 */
import { currentRegion } from "../../../../src/autocast.js";
import type { Backend } from "../../../../src/backends/backend.js";
import { openBackend } from "../../../../src/backends/open.js";
import { defaultRandom } from "../../../../src/modules/module.js";
import { empty } from "../../../../src/ops/create.js";
import { Float8CurrentScalingQuantizer } from "../../../../src/quantizers/float8.js";
import type { Quantizer } from "../../../../src/quantizers/quantizer.js";
import { RandomState } from "../../../../src/quantizers/random-state.js";
import { gradEnabled } from "../../../../src/tape/grad-mode.js";
import type { QuantizedTensor } from "../../../../src/tensor/quantized.js";
import { adopt, disown, type Scope } from "../../../../src/tensor/scope.js";
import { asMatrix, type DType, type Shape } from "../../../../src/tensor/shape.js";
import type { Tensor } from "../../../../src/tensor/tensor.js";

/** The shape of tensors by default: at least 256 bytes of every type, so that views can start inside. */
export const SIZE = [32, 128] as const;

export interface Backends {
  readonly backend: Backend;
  readonly otherBackend: Backend;
  /** A disposed backend. */
  readonly disposedBackend: Backend;
}

/** Opens two backends, wrapped by `wrap`, and one that is disposed of. */
export async function openBackends(wrap: (backend: Backend) => Backend): Promise<Backends> {
  const open = async () => wrap(await openBackend("wasm", { threads: 1, datapath: "hopper" }));
  const disposedBackend = await openBackend("wasm", { threads: 1 });
  await disposedBackend.dispose();
  return { backend: await open(), otherBackend: await open(), disposedBackend };
}

interface Disposer {
  dispose(): void;
}

export class World {
  readonly backend: Backend;
  readonly random = new RandomState(1n);
  readonly #disposers: Disposer[] = [];
  readonly #tensors = new Map<string, Tensor>();
  #canaries = 0;

  /** `shape` is the default shape of tensors. */
  constructor(
    readonly backends: Backends,
    readonly shape: Shape = SIZE,
  ) {
    this.backend = backends.backend;
  }

  /** The size of `shape` without its last dimension. */
  get rows(): number {
    return asMatrix(this.shape)[0];
  }

  /** The last size of `shape`. */
  get columns(): number {
    return asMatrix(this.shape)[1];
  }

  /** A tensor of small positive values. Its bytes are ordinary elements of every type. */
  tensor<D extends DType = "bf16">(
    dtype = "bf16" as D,
    shape: Shape = this.shape,
    backend = this.backend,
  ): Tensor<D> {
    const result = fillTensor(empty(backend, dtype, shape));
    this.watch(`${dtype} ${this.#tensors.size}`, result);
    const canary = fillTensor(empty(backend, "u8", [96]));
    this.watch(`canary ${this.#canaries++}`, canary);
    return result;
  }

  scalar(value = 1): Tensor<"f32"> {
    return this.tensor("f32", [1]).write(Float32Array.of(value));
  }

  quantize(
    quantizer: Quantizer = new Float8CurrentScalingQuantizer(),
    backend = this.backend,
  ): QuantizedTensor {
    const result = quantizer.quantize(this.tensor("bf16", this.shape, backend));
    for (const [i, member] of result.members.entries())
      this.watch(`member ${i} ${this.#tensors.size}`, member);
    return result;
  }

  /** Checks that the bytes of `x` do not change, unless the row lists it as written. */
  watch(name: string, x: Tensor): void {
    this.#tensors.set(name, x);
  }

  /** Disposes of an object at the end. */
  own<T extends Disposer>(object: T): T {
    this.#disposers.push(object);
    return object;
  }

  /** All state that a refused call may not change. */
  state(outputs: ReadonlySet<Tensor> = new Set()): Readonly<Record<string, unknown>> {
    const { backend, otherBackend } = this.backends;
    const bytes = [...this.#tensors].flatMap(([name, x]) =>
      x.disposed || outputs.has(x) ? [] : [[name, `${x.shape} ${x.dtype} ${hex(x)}`] as const],
    );
    return {
      ...Object.fromEntries(bytes),
      live: backend.memoryUse().live,
      blocks: backend.memoryUse().blocks,
      "live elsewhere": otherBackend.memoryUse().live,
      "random offset": this.random.offset,
      "default random": `${defaultRandom(backend).seed} ${defaultRandom(backend).offset}`,
      region: identify(currentRegion()),
      recording: gradEnabled(),
      scope: isInnermost(this.scope),
    };
  }

  /** The scope that is open during the call. */
  scope: Scope | undefined;

  dispose(): void {
    for (const disposer of this.#disposers.reverse()) disposer.dispose();
  }
}

/** Whether new tensors belong to `scope`: it is open, and every scope that was opened after it is closed. */
function isInnermost(scope: Scope | undefined): boolean {
  if (!scope) return true;
  const probe: Parameters<Scope["own"]>[0] = { dispose: () => undefined };
  adopt(probe);
  const owner = Object.getOwnPropertySymbols(probe).map((key) => Reflect.get(probe, key))[0];
  disown(probe);
  return owner === scope;
}

const identities = new WeakMap<object, number>();
let identityCount = 0;

function identify(object: object | undefined): number | undefined {
  if (!object) return undefined;
  const identity = identities.get(object) ?? ++identityCount;
  identities.set(object, identity);
  return identity;
}

function hex(x: Tensor): string {
  const { buffer, byteOffset, byteLength } = x.dataSync();
  return Buffer.from(buffer, byteOffset, byteLength).toString("base64");
}

export function fillTensor<D extends DType>(x: Tensor<D>): Tensor<D> {
  const { byteLength } = x;
  // The bytes are a small positive number in every type: 0.14 as f32; 0.63 and 0.14 as bf16; 1.8 and 1.5 as f16; 16 to
  // 63 as u8. An i32 is 1.
  const unit = x.dtype === "i32" ? [1, 0, 0, 0] : [0x20, 0x3f, 0x10, 0x3e];
  const bytes = new Uint8Array(4 * Math.ceil(byteLength / 4));
  new Uint32Array(bytes.buffer).fill(new Uint32Array(Uint8Array.from(unit).buffer)[0] as number);
  return x.write(bytes.subarray(0, byteLength));
}
