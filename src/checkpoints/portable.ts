/**
 * The entry point `lockstep/checkpoints/portable`: checkpoints of other libraries on platforms without a file system, such as
 * browsers.
 */
export type { BlobLike } from "../io/byte-file.js";
export type { FileDType } from "../io/dtypes.js";
export type { TensorEntry, TensorPlan } from "../io/header/header.js";

export { Checkpoint, type StoredWeight } from "./checkpoint.js";
export type { ConversionMethod } from "./convert/changes/weight-changes.js";
export type { WideTarget } from "./convert/dequantize/round.js";
export {
  type MeasuredForm,
  type MeasuredWeight,
  type MeasureFormOptions,
  measureForm,
  type ScaleOctaves,
} from "./convert/measure.js";
export type { LockstepTarget } from "./convert/targets/lockstep.js";
export { CONVERSION_TARGETS, type ConversionTarget } from "./convert/targets/named.js";
export type { DialectTarget } from "./convert/targets/table.js";
export type { Finding, FindingName, Severity } from "./judge/findings.js";
export {
  type BlobFiles,
  type OpenBlobOptions,
  type OpenBlobsOptions,
  openCheckpointBlob,
  openCheckpointBlobs,
} from "./open-blob.js";
export type { UnfitWeight } from "./recognize/recognize.js";
export type { MatrixRegion } from "./regions/region.js";
export type { RegionScales, WeightRegion } from "./regions/weight.js";
export type { LockstepWeightReport } from "./report.js";
export type { CodeTypeName } from "./stored/code-types.js";
export type { ConfigClaim } from "./stored/config/claim.js";
export {
  CONVENTION_SUMMARIES,
  type ConventionName,
  type ConventionSummary,
  type ScaleKind,
} from "./stored/conventions.js";
export type { WeightRows } from "./values/rows.js";
