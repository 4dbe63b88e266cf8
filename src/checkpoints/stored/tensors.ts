/** The tensors of a checkpoint, in files or in memory. */
import type { Metadata, TensorEntry } from "../../io/header/header.js";
import type { TensorSource } from "../../io/source.js";
import type { Container } from "./conventions.js";

/** A tensor of a checkpoint and the shard that has it. */
export interface StoredTensor {
  readonly entry: TensorEntry;
  readonly shard: TensorSource;
}

/** The tensors of a checkpoint. */
export interface CheckpointTensors {
  /** The shards that could be read, in the order of their names. */
  readonly shards: readonly TensorSource[];
  /** All tensors by name. If several shards have a tensor, the entry of the first shard. */
  readonly tensors: ReadonlyMap<string, StoredTensor>;
  /** The metadata of all shards. */
  readonly metadata: Metadata;
  /** The file format, if it is not safetensors. */
  readonly container?: Container;
}
