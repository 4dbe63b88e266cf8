/** Rows of the functions that read and convert checkpoints of other libraries. */
import { readFileSync } from "node:fs";
import type { Row, Rows } from "./row.js";
import { type CheckpointFolder, LIBRARY_CHECKPOINT } from "./rows-files.js";

const WEIGHT = "model.layers.0.mlp.down_proj.weight";
const REGION = { row: 0, column: 0, rows: 1, columns: 32 } as const;
const NUMBERS = Object.fromEntries(
  ["row", "column", "rows", "columns"].map((field) => [`region.${field}`, "index" as const]),
);

export function checkpointRows(folder: CheckpointFolder): Rows {
  const inspect: Row = {
    calls: [
      () => [
        LIBRARY_CHECKPOINT,
        { as: "ct-mxfp8", tensors: [WEIGHT], original: folder.plainTensors, onProgress: () => {} },
      ],
    ],
    isSlow: true,
  };
  const method = {
    self: () => folder.checkpoints.library,
    isUnbound: true,
    survivesDispose: true,
    isSlow: true,
  };
  return {
    openCheckpoint: { calls: [() => [LIBRARY_CHECKPOINT, { as: "ct-mxfp8" }]], isSlow: true },
    openCheckpointBlob: {
      calls: [
        () => [
          new Blob([readFileSync(LIBRARY_CHECKPOINT)]),
          { name: "a.safetensors", modelConfig: "{}", quantConfig: "{}" },
        ],
      ],
      isSlow: true,
      exemptions: { "options.name": "any name may be given" },
    },
    openCheckpointBlobs: {
      calls: [
        () => [new Map([["model.safetensors", new Blob([readFileSync(LIBRARY_CHECKPOINT)])]]), { name: "a" }],
      ],
      isSlow: true,
      exemptions: { "options.name": "any name may be given" },
    },
    measureForm: {
      calls: [(w) => [folder.checkpoints.library, { to: "bf16", backend: w.backend }]],
      isSlow: true,
    },
    inspectCheckpoint: inspect,
    verifyCheckpoint: inspect,
    convertCheckpoint: {
      calls: [
        (w) => [
          LIBRARY_CHECKPOINT,
          folder.conversionFolder,
          {
            to: "bf16",
            as: "ct-mxfp8",
            tensors: [WEIGHT],
            force: true,
            dryRun: true,
            openBackend: async () => w.backend,
            onProgress: () => {},
          },
        ],
      ],
      isSlow: true,
    },
    "Checkpoint.rows": { ...method, calls: [() => [WEIGHT]] },
    "Checkpoint.readWeight": { ...method, calls: [() => [WEIGHT, REGION]], numbers: NUMBERS },
    "Checkpoint.readTensor": { ...method, calls: [() => [WEIGHT, REGION]], numbers: NUMBERS },
    "Checkpoint.readQuantized": {
      ...method,
      self: () => folder.checkpoints.lockstep,
      calls: [(w) => ["w", w.backend, REGION]],
      numbers: NUMBERS,
    },
  };
}
