/** Commands that enter and leave regions. */
import fc from "fast-check";
import { expect } from "vitest";
import {
  type AutocastOptions,
  autocast,
  autocastScope,
  noGrad,
  UnsupportedError,
} from "../../../../src/index.js";
import type { AutocastModel, RecipeModel, TrainingModel } from "../../../oracle/training/delayed-training.js";
import { NamedCommand } from "./command.js";
import { createRecipe } from "./draws.js";
import { RefusingBackend } from "./refusing.js";
import type { World } from "./world.js";

export interface RegionDraw {
  readonly recipeIndex: number;
  readonly enabled: boolean;
  readonly calibrating: boolean;
  readonly group: number | undefined;
  readonly style: "callback" | "scope";
}

export const regionDraw: fc.Arbitrary<RegionDraw> = fc.record({
  recipeIndex: fc.nat(),
  enabled: fc.oneof({ weight: 4, arbitrary: fc.constant(true) }, fc.constant(false)),
  calibrating: fc.oneof({ weight: 2, arbitrary: fc.constant(false) }, fc.constant(true)),
  group: fc.option(fc.nat(2), { nil: undefined }),
  style: fc.constantFrom("callback", "scope"),
});

/** A drawn region in the form of the model and of the library. */
export function createRegion(
  { recipeIndex, enabled, calibrating, group }: RegionDraw,
  model: TrainingModel,
  world: World,
): { readonly modelled: AutocastModel; readonly options: AutocastOptions } {
  const recipe = world.recipes[recipeIndex % world.recipes.length] as RecipeModel;
  const amaxReductionGroup = group === undefined ? undefined : world.groups[group];
  return {
    modelled: {
      recipe,
      enabled,
      calibrating,
      group: group === undefined ? undefined : model.groups[group],
    },
    options: {
      recipe: createRecipe(recipe),
      enabled,
      calibrating,
      ...(amaxReductionGroup ? { amaxReductionGroup } : {}),
    },
  };
}

export class Enter extends NamedCommand {
  constructor(
    readonly flow: number,
    readonly draw: RegionDraw,
  ) {
    super();
  }

  override check(model: TrainingModel): boolean {
    return model.depth(this.flow) < 4;
  }

  async act(model: TrainingModel, world: World): Promise<void> {
    const { modelled, options } = createRegion(this.draw, model, world);
    model.enter(this.flow, modelled);
    await world.flows[this.flow]?.enter(async (body) => {
      if (this.draw.style === "callback") return autocast(options, body);
      using _region = autocastScope(options);
      await body();
    });
  }
}

export class EnterNoGrad extends NamedCommand {
  constructor(readonly flow: number) {
    super();
  }

  override check(model: TrainingModel): boolean {
    return model.depth(this.flow) < 4;
  }

  async act(model: TrainingModel, world: World): Promise<void> {
    model.enterNoGrad(this.flow);
    await world.flows[this.flow]?.enter((body) => noGrad(body));
  }
}

/** Enters a region whose recipe the backend does not support: it is refused, and nothing changes. */
export class RefusedEntry extends NamedCommand {
  constructor(
    readonly flow: number,
    readonly recipe: RecipeModel,
    readonly style: RegionDraw["style"],
  ) {
    super();
  }

  async act(_: TrainingModel, world: World): Promise<void> {
    const options = {
      recipe: createRecipe(this.recipe),
      backend: new RefusingBackend(world.backend, "gemm"),
    };
    const entry = world.flows[this.flow]?.enter(async (body) => {
      if (this.style === "callback") return autocast(options, body);
      using _region = autocastScope(options);
      await body();
    });
    await expect(entry).rejects.toThrow(UnsupportedError);
  }
}

export class Leave extends NamedCommand {
  constructor(
    readonly flow: number,
    readonly levels: number,
    readonly throws: boolean,
  ) {
    super();
  }

  override check(model: TrainingModel): boolean {
    return model.depth(this.flow) >= this.levels;
  }

  async act(model: TrainingModel, world: World): Promise<void> {
    for (let i = 0; i < this.levels; i++) model.leave(this.flow);
    const flow = world.flows[this.flow];
    if (this.throws) await flow?.escape(this.levels);
    else for (let i = 0; i < this.levels; i++) await flow?.leave();
  }
}
