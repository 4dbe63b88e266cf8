/** Commands that change weights, and that save and restore states. */
import type { Codes, TrainingModel } from "../../../oracle/training/delayed-training.js";
import { Named } from "./command.js";
import { matrixTensor } from "./expected.js";
import { quantizationOf, type World } from "./world.js";

/** Writes new values to a weight, as an optimizer does. */
export class Write extends Named {
  constructor(
    readonly layer: number,
    readonly codes: Codes,
  ) {
    super();
  }

  async act(model: TrainingModel, { backend, layers }: World): Promise<void> {
    const [modelled, linear] = [model.layers[this.layer], layers[this.layer]];
    if (!modelled || !linear) return;
    modelled.write(this.codes);
    const { value } = linear.weight;
    const source = matrixTensor(backend, this.codes);
    if ("quantize_" in value) value.quantize_(source);
    else value.write(this.codes);
  }
}

export class Save extends Named {
  constructor(readonly layer: number) {
    super();
  }

  async act(model: TrainingModel, world: World): Promise<void> {
    const linear = world.layers[this.layer];
    if (!linear) return;
    const real = quantizationOf(linear).snapshotSync();
    world.saved.push({ real, model: model.layers[this.layer]?.snapshot() });
  }
}

export class Restore extends Named {
  constructor(
    readonly layer: number,
    readonly which: number,
  ) {
    super();
  }

  async act(model: TrainingModel, world: World): Promise<void> {
    const linear = world.layers[this.layer];
    if (world.saved.length === 0 || !linear) return;
    const snapshot = world.saved[this.which % world.saved.length];
    model.layers[this.layer]?.restore(snapshot?.model);
    quantizationOf(linear).restore(snapshot?.real);
  }
}
