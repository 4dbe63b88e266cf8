/** The schedule of a pipeline: the actions of each stage and their order; no stage waits forever. */
import { readFileSync } from "node:fs";
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { ArgumentError } from "../../../../src/errors.js";
import type { PipelineAction, PipelineActionKind } from "../../../../src/parallel/pipeline/action.js";
import { pipelineSchedule } from "../../../../src/parallel/pipeline/schedule.js";
import { draws } from "../../harness/draws.js";

/** Every pipeline of up to 8 stages and 20 microbatches. */
const SIZES = Array.from({ length: 8 }, (_, stageIndex) =>
  Array.from({ length: 20 }, (_, microbatchIndex) => ({
    stages: stageIndex + 1,
    microbatches: microbatchIndex + 1,
  })),
).flat();

interface Size {
  readonly stages: number;
  readonly microbatches: number;
  readonly chunks?: number;
}

const drawnSize: fc.Arbitrary<Size> = fc.oneof(
  fc.record({ stages: fc.integer({ min: 1, max: 24 }), microbatches: fc.integer({ min: 1, max: 60 }) }),
  fc
    .record({
      stages: fc.integer({ min: 1, max: 12 }),
      groups: fc.integer({ min: 1, max: 4 }),
      chunks: fc.integer({ min: 2, max: 4 }),
    })
    .map(({ stages, groups, chunks }) => ({ stages, chunks, microbatches: stages * groups })),
);

const schedulesOf = ({ stages, microbatches, chunks }: Size): (readonly PipelineAction[])[] =>
  Array.from({ length: stages }, (_, stage) => pipelineSchedule({ stage, stages, microbatches, chunks }));

/** The other end of a message: the number of chunks of the model from this one to that one, and the kind of the action there. */
const SIDES: Partial<Record<PipelineActionKind, readonly [step: number, kind: PipelineActionKind]>> = {
  sendForward: [1, "recvForward"],
  recvForward: [-1, "sendForward"],
  sendBackward: [-1, "recvBackward"],
  recvBackward: [1, "sendBackward"],
};

/** Returns the stage at the other end of a message, and the matching action there. */
function partner(stage: number, { kind, microbatch, chunk }: PipelineAction, stages: number) {
  const side = SIDES[kind];
  if (!side) return undefined;
  const position = chunk * stages + stage + side[0];
  return {
    stage: position % stages,
    action: { kind: side[1], microbatch, chunk: Math.floor(position / stages) },
  };
}

const isSame = (a: PipelineAction | undefined, b: PipelineAction): boolean =>
  a?.kind === b.kind && a.microbatch === b.microbatch && a.chunk === b.chunk;

/** The duration of each kind of pass. */
const TIME: Partial<Record<PipelineActionKind, number>> = { forward: 1, backward: 2 };

/**
 * Simulates all stages. In each step `choose` picks a stage to advance. A message takes `messageTime`, and begins when both
 * stages have reached it. Returns the time at which the last stage ends. Throws if no stage can advance.
 */
function simulate(
  schedules: readonly (readonly PipelineAction[])[],
  choose: (count: number) => number,
  messageTime = 0,
) {
  const nextAction = schedules.map(() => 0);
  const clock = schedules.map(() => 0);
  const next = (stage: number): PipelineAction | undefined => schedules[stage]?.[nextAction[stage] as number];
  const doneActions = new Set<string>();
  const chunks = 1 + Math.max(...schedules.flat().map(({ chunk }) => chunk));
  for (;;) {
    const ready = schedules.flatMap((_, stage) => {
      const action = next(stage);
      const otherSide = action && partner(stage, action, schedules.length);
      if (!action) return [];
      if (!otherSide) return [[stage]];
      // a stage with several chunks passes results to itself if there is no other stage
      if (otherSide.stage === stage) return [[stage]];
      return isSame(next(otherSide.stage), otherSide.action) && stage < otherSide.stage
        ? [[stage, otherSide.stage]]
        : [];
    });
    if (ready.length === 0) break;
    const readyStage = ready[choose(ready.length)] as readonly number[];
    const together = Math.max(...readyStage.map((stage) => clock[stage] as number));
    for (const stage of readyStage) {
      const action = next(stage) as PipelineAction;
      requireInputs(doneActions, stage, schedules.length, chunks, action);
      doneActions.add(keyOf(stage, action));
      clock[stage] = together + (TIME[action.kind] ?? messageTime);
      nextAction[stage] = (nextAction[stage] as number) + 1;
    }
  }
  for (const [stage, actions] of schedules.entries())
    if (nextAction[stage] !== actions.length)
      throw new Error(`stage ${stage} waits forever in ${JSON.stringify(next(stage))}`);
  return Math.max(...clock);
}

const keyOf = (stage: number, { kind, microbatch, chunk }: PipelineAction): string =>
  `${kind} ${microbatch} ${chunk} ${stage}`;

/** Throws unless a stage has what an action needs: the received tensor of this chunk, or the pass that comes before. */
function requireInputs(
  doneActions: ReadonlySet<string>,
  stage: number,
  stages: number,
  chunks: number,
  action: PipelineAction,
): void {
  const virtualStage = action.chunk * stages + stage;
  const needs: Readonly<Record<PipelineActionKind, readonly (PipelineActionKind | false)[]>> = {
    recvForward: [],
    forward: [virtualStage > 0 && "recvForward"],
    sendForward: ["forward"],
    recvBackward: ["forward"],
    backward: ["forward", virtualStage < stages * chunks - 1 && "recvBackward"],
    sendBackward: ["backward"],
  };
  for (const requirement of needs[action.kind])
    if (requirement && !doneActions.has(keyOf(stage, { ...action, kind: requirement })))
      throw new Error(`stage ${stage}: ${JSON.stringify(action)} comes before ${requirement}`);
  const otherSide = partner(stage, action, stages);
  if (
    otherSide?.stage === stage &&
    action.kind.startsWith("recv") &&
    !doneActions.has(keyOf(stage, otherSide.action))
  )
    throw new Error(`stage ${stage}: ${JSON.stringify(action)} comes before it was sent`);
}

/** The largest number of microbatches of all chunks that are between their forward and their backward pass. */
function maxLiveOf({ stages, microbatches, chunks = 1 }: Size, stage: number): number {
  if (chunks === 1) return Math.min(stages - stage, microbatches);
  return Math.min(2 * (stages - 1 - stage) + (chunks - 1) * stages + 1, microbatches * chunks);
}

function assertComplete(size: Size): void {
  const { stages, microbatches, chunks = 1 } = size;
  const microbatchIndices = Array.from({ length: microbatches }, (_, i) => i);
  for (const [stage, actions] of schedulesOf(size).entries()) {
    for (let chunk = 0; chunk < chunks; chunk++) {
      const order = (kind: PipelineActionKind): number[] =>
        actions.flatMap((action) =>
          action.kind === kind && action.chunk === chunk ? [action.microbatch] : [],
        );
      const virtualStage = chunk * stages + stage;
      for (const kind of ["forward", "backward"] as const) expect(order(kind)).toEqual(microbatchIndices);
      for (const kind of ["recvForward", "sendBackward"] as const)
        expect(order(kind)).toEqual(virtualStage > 0 ? microbatchIndices : []);
      for (const kind of ["sendForward", "recvBackward"] as const)
        expect(order(kind)).toEqual(virtualStage < stages * chunks - 1 ? microbatchIndices : []);
    }
    let [live, maxLive] = [0, 0];
    for (const { kind } of actions) {
      if (kind === "forward") live++;
      if (kind === "backward") live--;
      maxLive = Math.max(maxLive, live);
    }
    expect(maxLive, `activations of stage ${stage}`).toBe(maxLiveOf(size, stage));
  }
}

describe("the 1F1B schedule", () => {
  it("contains each pass of each microbatch once, in order, and keeps at most stages - stage activations", () => {
    for (const size of SIZES) assertComplete(size);
  });

  it("has no deadlock even if every send waits for its receiver, and takes the time of 1F1B", () => {
    for (const size of SIZES)
      expect(
        simulate(schedulesOf(size), () => 0),
        JSON.stringify(size),
      ).toBe(3 * (size.microbatches + size.stages - 1));
  });

  it("takes the same time under every interleaving of the ranks", () => {
    fc.assert(
      fc.property(drawnSize, fc.infiniteStream(fc.nat()), (size, picks) => {
        assertComplete(size);
        const { stages, microbatches, chunks = 1 } = size;
        const choose = (count: number): number => (picks.next().value as number) % count;
        expect(simulate(schedulesOf(size), choose)).toBe(3 * (chunks * microbatches + stages - 1));
      }),
      { numRuns: draws(30) },
    );
  });

  it.each([1, 2, 3, 4, 5, 8].flatMap((stages) => [2, 3, 5].map((chunks) => ({ stages, chunks }))))(
    "of $chunks chunks on $stages stages contains each pass once, in order, and idles for one chunk's passes per further stage",
    ({ stages, chunks }) => {
      for (const groups of [1, 2, 3]) {
        const size = { stages, chunks, microbatches: stages * groups };
        assertComplete(size);
        const time = simulate(schedulesOf(size), () => 0);
        expect(time, JSON.stringify(size)).toBe(3 * (chunks * size.microbatches + stages - 1));
      }
    },
  );

  it("of several chunks takes the time of two messages per pass, or of three if the number of stages is odd", () => {
    for (const stages of [2, 3, 4, 5, 8]) {
      const size = { stages, chunks: 3, microbatches: 2 * stages };
      const passes = 2 * (size.chunks * size.microbatches + stages - 1);
      const passTime = (3 * passes) / 2;
      const time = simulate(schedulesOf(size), () => 0, 1);
      expect((time - passTime) / passes, JSON.stringify(size)).toBeLessThanOrEqual(2 + (stages % 2));
    }
  });

  it("takes the times that docs/distributed.md tells", () => {
    const times = [1, 2, 4].map(
      (chunks) => simulate(schedulesOf({ stages: 4, microbatches: 8, chunks }), () => 0) / chunks,
    );
    const page = readFileSync(new URL("../../../../docs/distributed.md", import.meta.url), "utf8");
    for (const [i, name] of ["one stage a rank", "2 stages a rank", "4 stages a rank"].entries()) {
      const time = times[i] as number;
      expect(page).toContain(`| ${name} | ${time} | ${Math.round(100 * (1 - (3 * 8) / time))} % |`);
    }
  });

  it("equals the published order for two stages and three microbatches", () => {
    const descriptions = schedulesOf({ stages: 2, microbatches: 3 }).map((actions) =>
      actions.map(({ kind, microbatch }) => `${kind} ${microbatch}`).join(", "),
    );
    expect(descriptions).toEqual([
      "forward 0, sendForward 0, forward 1, recvBackward 0, sendForward 1, backward 0, forward 2, recvBackward 1, sendForward 2, backward 1, recvBackward 2, backward 2",
      "recvForward 0, forward 0, backward 0, sendBackward 0, recvForward 1, forward 1, backward 1, sendBackward 1, recvForward 2, forward 2, backward 2, sendBackward 2",
    ]);
  });

  it("refuses invalid stages and numbers of microbatches", () => {
    const validOptions = { stage: 0, stages: 2, microbatches: 1 };
    for (const invalidOptions of [
      ...[{ stage: 2 }, { stage: -1 }, { stages: 0 }, { microbatches: 0 }, { stage: 0.5 }],
      ...[
        { chunks: 0 },
        { chunks: 65, microbatches: 2 },
        { chunks: 2 },
        { chunks: 2, stages: 1024, microbatches: 1024 },
      ],
    ])
      expect(() => pipelineSchedule({ ...validOptions, ...invalidOptions })).toThrow(ArgumentError);
  });

  it("is computed for the largest sizes; larger ones are refused before memory is allocated", () => {
    const maximum = { stages: 1024, microbatches: 65_536 };
    for (const stage of [0, 1, 1023])
      expect(pipelineSchedule({ ...maximum, stage }).filter(({ kind }) => kind === "backward")).toHaveLength(
        maximum.microbatches,
      );
    for (const excess of [1, 2 ** 32, Number.MAX_SAFE_INTEGER - 2 ** 16])
      for (const field of ["stages", "microbatches"] as const)
        expect(() => pipelineSchedule({ stage: 0, ...maximum, [field]: maximum[field] + excess })).toThrow(
          ArgumentError,
        );
  });
});
