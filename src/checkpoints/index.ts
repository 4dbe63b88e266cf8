/** The entry point `lockstep/checkpoints`: checkpoints of other libraries, for platforms with a file system. */
export { type ConversionReport, type ConvertCheckpointOptions, convertCheckpoint } from "./api/convert.js";
export { inspectCheckpoint, type Verification, verifyCheckpoint } from "./api/inspect.js";
export { openCheckpoint } from "./api/open.js";
export type { InspectCheckpointOptions, OpenCheckpointOptions, TransferProgress } from "./api/options.js";
export type { WeightChanges } from "./convert/changes/weight-changes.js";
export type { GgufFacts, MetadataValue } from "./gguf/facts.js";
export type { OriginalError } from "./judge/original/error.js";
export type { ScaleStatistics } from "./judge/statistics/scale-counter.js";
export * from "./portable.js";
export type { CheckpointReport, PlainReport, StoredScaleStatistics, WeightReport } from "./report.js";
