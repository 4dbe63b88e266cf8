/** Regions, scales, histories and cached weights under any sequence of commands. */
import fc from "fast-check";
import { it, vi } from "vitest";
import { expectNoLeak } from "../../operations/guarded.js";
import { derivedSeed, draws } from "../harness/draws.js";
import { ALL_COMMANDS } from "../harness/state/commands.js";
import { matrix, recipeModel } from "../harness/state/draws.js";
import { createModel, type InitialState, World } from "../harness/state/world.js";
import { useBackend } from "../harness/suite.js";

const RUNS = draws(200);
const backend = useBackend();

const start: fc.Arbitrary<InitialState> = fc.record({
  weights: fc.array(matrix, { minLength: 3, maxLength: 3 }),
  recipes: fc.tuple(recipeModel, recipeModel),
  otherAmaxes: fc.array(fc.constantFrom(0, 0, 0.75, 3, 96, Number.POSITIVE_INFINITY), {
    minLength: 1,
    maxLength: 7,
  }),
});

it("every state and every bit agree with a model in plain numbers, for any sequence of calls", async () => {
  const commands = fc.commands([...ALL_COMMANDS], { maxCommands: 40, size: "max" });
  await fc.assert(
    fc.asyncProperty(start, commands, async (startState, cmds) => {
      const memoryBefore = backend().memoryUse();
      const model = createModel(startState);
      const world = new World(backend(), startState);
      const warn = vi.spyOn(console, "warn").mockImplementation(() => {
        world.warnings++;
      });
      try {
        await fc.asyncModelRun(() => ({ model, real: world }), cmds);
        await world.leaveRegions(model);
      } finally {
        world.dispose();
        warn.mockRestore();
      }
      expectNoLeak(backend(), memoryBefore);
    }),
    { numRuns: RUNS, seed: derivedSeed(71) },
  );
});
