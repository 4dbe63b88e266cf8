/** The entry point `lockstep/io`, for hosts with a file system. */
export { type CheckpointState, loadCheckpoint, type SavedState, saveCheckpoint } from "./checkpoint.js";
export type { FileDType } from "./dtypes.js";
export type { Header, Metadata, PutTensor, TensorEntry, TensorPlan } from "./header/header.js";
export { type FileInspector, type OpenInspectorOptions, openInspector } from "./inspection.js";
export { SafetensorsFile } from "./safetensors.js";
export { type FilePlan, writeSafetensors } from "./safetensors-writer.js";
export { type LoadedShardedState, loadShardedCheckpoint } from "./sharded/load.js";
export type { ShardedState } from "./sharded/local.js";
export { type SavedShardedState, saveShardedCheckpoint } from "./sharded/save.js";
export { TensorSource } from "./source.js";
export {
  type LoadedTensors,
  type LoadTensorsOptions,
  loadTensors,
  type NamedTensor,
  type SaveTensorsOptions,
  saveTensors,
} from "./tensors.js";
