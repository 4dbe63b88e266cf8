/** Commands that change weights, and that save and restore states. */
import type { Codes, TrainingModel } from "../../../oracle/training/delayed-training.js";
import { NamedCommand } from "./command.js";
import { matrixTensor } from "./expected.js";
import { linearQuantization, type World } from "./world.js";

/** Writes new values to a weight, as an optimizer does. */
export class Write extends NamedCommand {
  constructor(
    readonly layer: number,
    readonly codes: Codes,
  ) {
    super();
  }

  async act(model: TrainingModel, { backend, layers }: World): Promise<void> {
    const [layerModel, linear] = [model.layers[this.layer], layers[this.layer]];
    if (!layerModel || !linear) return;
    layerModel.write(this.codes);
    const { value } = linear.weight;
    const source = matrixTensor(backend, this.codes);
    if ("quantize_" in value) value.quantize_(source);
    else value.write(this.codes);
  }
}

export class Save extends NamedCommand {
  constructor(readonly layer: number) {
    super();
  }

  async act(model: TrainingModel, world: World): Promise<void> {
    const linear = world.layers[this.layer];
    if (!linear) return;
    const snapshot = linearQuantization(linear).snapshotSync();
    world.snapshots.push({ library: snapshot, model: model.layers[this.layer]?.snapshot() });
  }
}

export class Restore extends NamedCommand {
  constructor(
    readonly layer: number,
    readonly snapshotIndex: number,
  ) {
    super();
  }

  async act(model: TrainingModel, world: World): Promise<void> {
    const linear = world.layers[this.layer];
    if (world.snapshots.length === 0 || !linear) return;
    const snapshot = world.snapshots[this.snapshotIndex % world.snapshots.length];
    model.layers[this.layer]?.restore(snapshot?.model);
    linearQuantization(linear).restore(snapshot?.library);
  }
}
