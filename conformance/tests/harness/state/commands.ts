/** All commands of a training run. Each acts on the library and on the model. */
import fc from "fast-check";
import type { Command } from "./command.js";
import { matrix, recipeModel } from "./draws.js";
import { Backward, Forward, Iteration, passDraw } from "./pass-commands.js";
import { Enter, EnterNoGrad, Leave, RefusedEntry, regionDraw } from "./region-commands.js";
import { Restore, Save, Write } from "./state-commands.js";

const flow = fc.nat(1);
const layer = fc.nat(2);
const passes = fc.array(passDraw, { minLength: 1, maxLength: 3 });

/** Repeats an arbitrary `count` times, so that a list draws it `count` times as often. */
function weighted(count: number, command: fc.Arbitrary<Command>): readonly fc.Arbitrary<Command>[] {
  return new Array<fc.Arbitrary<Command>>(count).fill(command);
}

export const ALL_COMMANDS: readonly fc.Arbitrary<Command>[] = [
  ...weighted(
    4,
    fc.tuple(flow, regionDraw).map((args) => new Enter(...args)),
  ),
  flow.map((index) => new EnterNoGrad(index)),
  fc.tuple(flow, recipeModel, fc.constantFrom("callback", "scope")).map((args) => new RefusedEntry(...args)),
  fc.tuple(flow, fc.integer({ min: 1, max: 3 }), fc.boolean()).map((args) => new Leave(...args)),
  ...weighted(
    2,
    flow.map((index) => new Leave(index, 1, false)),
  ),
  ...weighted(
    6,
    fc.tuple(flow, passes, regionDraw, fc.boolean()).map((args) => new Iteration(...args)),
  ),
  ...weighted(
    4,
    fc.tuple(flow, passes).map((args) => new Forward(...args)),
  ),
  ...weighted(
    4,
    fc.tuple(flow, fc.nat(), matrix).map((args) => new Backward(...args)),
  ),
  ...weighted(
    3,
    fc.tuple(layer, matrix).map((args) => new Write(...args)),
  ),
  layer.map((index) => new Save(index)),
  fc.tuple(layer, fc.nat()).map((args) => new Restore(...args)),
];
