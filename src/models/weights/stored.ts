/** Reads stored tensors onto a backend, a few elements at a time. */
import type { Backend } from "../../backends/backend.js";
import { WIDE_TARGETS } from "../../checkpoints/convert/dequantize/round.js";
import { writeDequantized } from "../../checkpoints/convert/dequantize/write.js";
import { Kernels } from "../../checkpoints/kernels/kernels.js";
import type { Recognized } from "../../checkpoints/recognize/recognize.js";
import { conventionOf } from "../../checkpoints/stored/conventions.js";
import type { StoredTensor } from "../../checkpoints/stored/tensors.js";
import { lockstepRows } from "../../checkpoints/values/lockstep.js";
import { FileError } from "../../errors.js";
import { tensorDType } from "../../io/dtypes.js";
import { castTo } from "../../ops/cast/cast.js";
import { fromBytes } from "../../ops/create.js";
import { asBytes } from "../../tensor/data.js";
import { Scope } from "../../tensor/scope.js";
import { elementCount, isWide, type Shape, storageBits, type WideDType } from "../../tensor/shape.js";
import type { Tensor } from "../../tensor/tensor.js";

/** The bytes of a plain tensor that are read at a time. */
const CHUNK_BYTES = 1 << 22;

/** Receives consecutive elements: the index of the first one, and a tensor that is freed after the call. */
export type PutElements = (first: number, elements: Tensor<WideDType>) => void;

/** A tensor of a checkpoint whose values are numbers: a plain one or a quantized weight. */
export interface StoredValues {
  readonly shape: Shape;
  /**
   * Whether elements are in the order of an unquantized tensor. Quantized weights of conventions with `transposedWide` are not.
   */
  readonly inWideOrder: boolean;
  /** Reads all elements in order, as numbers of `dtype`. */
  readonly read: (backend: Backend, dtype: WideDType, put: PutElements) => Promise<void>;
}

/** All tensors with values of a checkpoint, by name. */
export function storedValues(recognized: Recognized): ReadonlyMap<string, StoredValues> {
  let kernels: Promise<Kernels> | undefined;
  const all = new Map<string, StoredValues>();
  for (const stored of recognized.plain) all.set(stored.entry.name, plainValues(stored));
  for (const weight of recognized.weights)
    all.set(weight.name, {
      shape: weight.shape,
      inWideOrder: conventionOf(weight.convention).transposedWide !== true,
      read: async (backend, dtype, put) => {
        const type = WIDE_TARGETS.find((each) => each === dtype) ?? "f32";
        const append = appending(backend, type, dtype, put);
        kernels ??= Kernels.open();
        await writeDequantized(await kernels, weight, type, async (bytes) => append(bytes));
      },
    });
  for (const weight of recognized.lockstepWeights)
    all.set(weight.name, {
      shape: weight.recipe.shape,
      inWideOrder: true,
      read: async (backend, dtype, put) => {
        const append = appending(backend, "f32", dtype, put);
        for await (const { values } of lockstepRows(weight)) append(asBytes(Float32Array.from(values)));
      },
    });
  return all;
}

function plainValues({ shard, entry }: StoredTensor): StoredValues {
  const { name, shape, dtype: type } = entry;
  return {
    shape,
    inWideOrder: true,
    read: async (backend, dtype, put) => {
      const stored = tensorDType(type);
      if (stored === undefined || !isWide(stored))
        throw new FileError(
          `${shard.path}: tensor "${name}" is ${type}, which no model computes with; F32, BF16, F16 or a quantized weight is needed`,
        );
      const append = appending(backend, stored, dtype, put);
      const bytes = (elementCount(shape) * storageBits(stored)) / 8;
      for (let at = 0; at < bytes; at += CHUNK_BYTES)
        append(await shard.read(entry, at, Math.min(bytes, at + CHUNK_BYTES)));
    },
  };
}

/** Returns a function that takes the bytes of elements in order, and passes the elements on as numbers of `dtype`. */
function appending(
  backend: Backend,
  type: WideDType,
  dtype: WideDType,
  put: PutElements,
): (bytes: Uint8Array) => void {
  let first = 0;
  return (bytes) => {
    using _scope = new Scope();
    const count = (8 * bytes.length) / storageBits(type);
    put(first, castTo(fromBytes(backend, bytes, [count], type), dtype));
    first += count;
  };
}
