/** All commands of a training run. Each acts on the library and on the model. */
import fc from "fast-check";
import type { Command } from "./command.js";
import { matrix, recipeModel } from "./draws.js";
import { Backward, Forward, Iteration, pass } from "./pass-commands.js";
import { Enter, EnterNoGrad, Leave, RefusedEntry, region } from "./region-commands.js";
import { Restore, Save, Write } from "./state-commands.js";

const flow = fc.nat(1);
const layer = fc.nat(2);
const passes = fc.array(pass, { minLength: 1, maxLength: 3 });

/** Repeats an arbitrary `count` times, which makes it `count` times as likely in a list. */
function often(count: number, command: fc.Arbitrary<Command>): readonly fc.Arbitrary<Command>[] {
  return new Array<fc.Arbitrary<Command>>(count).fill(command);
}

export const ALL_COMMANDS: readonly fc.Arbitrary<Command>[] = [
  ...often(
    4,
    fc.tuple(flow, region).map((args) => new Enter(...args)),
  ),
  flow.map((each) => new EnterNoGrad(each)),
  fc.tuple(flow, recipeModel, fc.constantFrom("callback", "scope")).map((args) => new RefusedEntry(...args)),
  fc.tuple(flow, fc.integer({ min: 1, max: 3 }), fc.boolean()).map((args) => new Leave(...args)),
  ...often(
    2,
    flow.map((each) => new Leave(each, 1, false)),
  ),
  ...often(
    6,
    fc.tuple(flow, passes, region, fc.boolean()).map((args) => new Iteration(...args)),
  ),
  ...often(
    4,
    fc.tuple(flow, passes).map((args) => new Forward(...args)),
  ),
  ...often(
    4,
    fc.tuple(flow, fc.nat(), matrix).map((args) => new Backward(...args)),
  ),
  ...often(
    3,
    fc.tuple(layer, matrix).map((args) => new Write(...args)),
  ),
  layer.map((each) => new Save(each)),
  fc.tuple(layer, fc.nat()).map((args) => new Restore(...args)),
];
