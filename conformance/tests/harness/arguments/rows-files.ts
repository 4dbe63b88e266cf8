/** Checkpoints. */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { saveCheckpoint } from "../../../../src/io/index.js";
import { Linear } from "../../../../src/modules/linear.js";
import { constantInit } from "../../../../src/modules/parameter.js";
import { SGD } from "../../../../src/optimizers/sgd.js";
import { inWorld } from "./law.js";
import type { Rows } from "./row.js";
import type { Backends, World } from "./world.js";

/** A folder with a checkpoint of what `run` makes. Deleted by `end`. */
export class CheckpointFolder {
  readonly #path = mkdtempSync(join(tmpdir(), "lockstep-arguments-"));

  /** Of a run. */
  readonly saved = join(this.#path, "saved.safetensors");
  /** Where runs are saved. */
  readonly written = join(this.#path, "written.safetensors");

  async fill(backends: Backends): Promise<void> {
    await inWorld(backends, (world) => saveCheckpoint(this.saved, run(world)));
  }

  end(): void {
    rmSync(this.#path, { recursive: true });
  }
}

function run(w: World) {
  const module = w.own(new Linear(w.backend, 16, 32, { initMethod: constantInit(0.5), random: w.random }));
  for (const [name, { tensor }] of module.namedParameters()) w.watch(`e ${name}`, tensor);
  const optimizer = w.own(new SGD(module, { learningRate: 1, momentum: 0.5 }));
  return { module, optimizer, random: w.random };
}

export function fileRows(folder: CheckpointFolder): Rows {
  return {
    saveCheckpoint: {
      calls: [(w) => [folder.written, { ...run(w), extra: { step: 1 } }]],
      costly: true,
    },
    loadCheckpoint: {
      calls: [(w) => [folder.saved, run(w)]],
      costly: true,
    },
  };
}
