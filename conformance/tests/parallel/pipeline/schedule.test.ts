/** The schedule of a pipeline: the actions of each stage and their order; no stage waits forever. */
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { ArgumentError } from "../../../../src/errors.js";
import {
  type PipelineAction,
  type PipelineActionKind,
  pipelineSchedule,
} from "../../../../src/parallel/pipeline/schedule.js";
import { draws } from "../../harness/draws.js";

/** Every pipeline of up to 8 stages and 20 microbatches. */
const SIZES = Array.from({ length: 8 }, (_, s) =>
  Array.from({ length: 20 }, (_, m) => ({ stages: s + 1, microbatches: m + 1 })),
).flat();

interface Size {
  readonly stages: number;
  readonly microbatches: number;
}

const drawnSize: fc.Arbitrary<Size> = fc.record({
  stages: fc.integer({ min: 1, max: 24 }),
  microbatches: fc.integer({ min: 1, max: 60 }),
});

const schedulesOf = ({ stages, microbatches }: Size): (readonly PipelineAction[])[] =>
  Array.from({ length: stages }, (_, stage) => pipelineSchedule({ stage, stages, microbatches }));

/** Returns the stage at the other end of a message, and the matching action there. */
function partner(stage: number, { kind, microbatch }: PipelineAction) {
  const sides: Partial<Record<PipelineActionKind, readonly [number, PipelineActionKind]>> = {
    sendForward: [stage + 1, "recvForward"],
    recvForward: [stage - 1, "sendForward"],
    sendBackward: [stage - 1, "recvBackward"],
    recvBackward: [stage + 1, "sendBackward"],
  };
  const side = sides[kind];
  return side && { stage: side[0], action: { kind: side[1], microbatch } };
}

/** The duration of each pass. Messages take no time. */
const TIME: Partial<Record<PipelineActionKind, number>> = { forward: 1, backward: 2 };

/**
 * Simulates all stages. In each step `choose` picks a stage to advance; a message is transferred when both stages have reached
 * it. Returns the time at which the last stage ends, and the actions in order. Throws if no stage can advance.
 */
function simulated(schedules: readonly (readonly PipelineAction[])[], choose: (count: number) => number) {
  const at = schedules.map(() => 0);
  const clock = schedules.map(() => 0);
  const next = (stage: number): PipelineAction | undefined => schedules[stage]?.[at[stage] as number];
  const done = new Set<string>();
  for (;;) {
    const ready = schedules.flatMap((_, stage) => {
      const action = next(stage);
      const other = action && partner(stage, action);
      if (!action) return [];
      if (!other) return [[stage]];
      const there = next(other.stage);
      const met = there?.kind === other.action.kind && there.microbatch === other.action.microbatch;
      return met && stage < other.stage ? [[stage, other.stage]] : [];
    });
    if (ready.length === 0) break;
    const moving = ready[choose(ready.length)] as readonly number[];
    const together = Math.max(...moving.map((stage) => clock[stage] as number));
    for (const stage of moving) {
      const { kind, microbatch } = next(stage) as PipelineAction;
      requireInputs(done, stage, schedules.length - 1, kind, microbatch);
      done.add(`${kind} ${microbatch} ${stage}`);
      clock[stage] = together + (TIME[kind] ?? 0);
      at[stage] = (at[stage] as number) + 1;
    }
  }
  for (const [stage, actions] of schedules.entries())
    if (at[stage] !== actions.length)
      throw new Error(`stage ${stage} waits forever in ${JSON.stringify(next(stage))}`);
  return Math.max(...clock);
}

/** Throws unless a stage has received the inputs of an action. */
function requireInputs(
  done: ReadonlySet<string>,
  stage: number,
  last: number,
  kind: PipelineActionKind,
  microbatch: number,
): void {
  const needs: Readonly<Record<PipelineActionKind, readonly (PipelineActionKind | false)[]>> = {
    recvForward: [],
    forward: [stage > 0 && "recvForward"],
    sendForward: ["forward"],
    recvBackward: ["forward"],
    backward: ["forward", stage < last && "recvBackward"],
    sendBackward: ["backward"],
  };
  for (const each of needs[kind])
    if (each && !done.has(`${each} ${microbatch} ${stage}`))
      throw new Error(`stage ${stage}: ${kind} ${microbatch} comes before ${each}`);
}

function assertWhole({ stages, microbatches }: Size): void {
  for (const [stage, actions] of schedulesOf({ stages, microbatches }).entries()) {
    const order = (kind: PipelineActionKind): number[] =>
      actions.flatMap((each) => (each.kind === kind ? [each.microbatch] : []));
    const all = Array.from({ length: microbatches }, (_, i) => i);
    for (const kind of ["forward", "backward"] as const) expect(order(kind)).toEqual(all);
    for (const kind of ["recvForward", "sendBackward"] as const)
      expect(order(kind)).toEqual(stage > 0 ? all : []);
    for (const kind of ["sendForward", "recvBackward"] as const)
      expect(order(kind)).toEqual(stage < stages - 1 ? all : []);
    let [live, most] = [0, 0];
    for (const { kind } of actions) {
      if (kind === "forward") live++;
      if (kind === "backward") live--;
      most = Math.max(most, live);
    }
    expect(most, `activations of stage ${stage}`).toBe(Math.min(stages - stage, microbatches));
  }
}

describe("the 1F1B schedule", () => {
  it("contains each pass of each microbatch once, in order, and keeps at most stages - stage activations", () => {
    for (const size of SIZES) assertWhole(size);
  });

  it("has no deadlock even if every send waits for its receiver, and takes the time of 1F1B", () => {
    for (const size of SIZES)
      expect(
        simulated(schedulesOf(size), () => 0),
        JSON.stringify(size),
      ).toBe(3 * (size.microbatches + size.stages - 1));
  });

  it("takes the same time under every interleaving of the ranks", () => {
    fc.assert(
      fc.property(drawnSize, fc.infiniteStream(fc.nat()), (size, picks) => {
        assertWhole(size);
        const choose = (count: number): number => (picks.next().value as number) % count;
        expect(simulated(schedulesOf(size), choose)).toBe(3 * (size.microbatches + size.stages - 1));
      }),
      { numRuns: draws(30) },
    );
  });

  it("equals the published order for two stages and three microbatches", () => {
    const said = schedulesOf({ stages: 2, microbatches: 3 }).map((actions) =>
      actions.map(({ kind, microbatch }) => `${kind} ${microbatch}`).join(", "),
    );
    expect(said).toEqual([
      "forward 0, sendForward 0, forward 1, recvBackward 0, sendForward 1, backward 0, forward 2, recvBackward 1, sendForward 2, backward 1, recvBackward 2, backward 2",
      "recvForward 0, forward 0, backward 0, sendBackward 0, recvForward 1, forward 1, backward 1, sendBackward 1, recvForward 2, forward 2, backward 2, sendBackward 2",
    ]);
  });

  it("refuses invalid stages and numbers of microbatches", () => {
    const good = { stage: 0, stages: 2, microbatches: 1 };
    for (const wrong of [{ stage: 2 }, { stage: -1 }, { stages: 0 }, { microbatches: 0 }, { stage: 0.5 }])
      expect(() => pipelineSchedule({ ...good, ...wrong })).toThrow(ArgumentError);
  });

  it("exists for the largest sizes, and larger ones are refused before memory is allocated for them", () => {
    const most = { stages: 1024, microbatches: 65_536 };
    for (const stage of [0, 1, 1023])
      expect(pipelineSchedule({ ...most, stage }).filter(({ kind }) => kind === "backward")).toHaveLength(
        most.microbatches,
      );
    for (const beyond of [1, 2 ** 32, Number.MAX_SAFE_INTEGER - 2 ** 16])
      for (const field of ["stages", "microbatches"] as const)
        expect(() => pipelineSchedule({ stage: 0, ...most, [field]: most[field] + beyond })).toThrow(
          ArgumentError,
        );
  });
});
