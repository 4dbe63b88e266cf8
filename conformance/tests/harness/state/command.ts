/** The base class of the commands of a run. */
import type fc from "fast-check";
import type { TrainingModel } from "../../../oracle/training/delayed-training.js";
import type { World } from "./world.js";

export type Command = fc.AsyncCommand<TrainingModel, World>;

/** A command that prints as its name and its drawn values. */
export abstract class NamedCommand implements Command {
  check(_: Readonly<TrainingModel>): boolean {
    return true;
  }

  protected abstract act(model: TrainingModel, world: World): Promise<void>;

  async run(model: TrainingModel, world: World): Promise<void> {
    await this.act(model, world);
    world.check(model);
  }

  toString(): string {
    return `${this.constructor.name} ${JSON.stringify(this, (_, value) =>
      value instanceof Uint16Array ? value.toString() : value,
    )}`;
  }
}
