/**
 * Whatever an argument is, a call returns or is refused by a typed error with a short message, in bounded time, and writes nothing
 * outside of tensors. An object that answers otherwise each time is read once: the call does what it does with a plain one.
 * `RUNS` and `SEED` choose the draws.
 */
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { costumesOf, disguised, LATER } from "../harness/arguments/disguises.js";
import { inWorld } from "../harness/arguments/law.js";
import { type Outcome, outcomeOf } from "../harness/arguments/outcome.js";
import { rows, targetOf, useBackends } from "../harness/arguments/package.js";
import type { Row } from "../harness/arguments/row.js";
import { replaced, spotsIn, WRONG } from "../harness/arguments/wrong.js";
import { drawsOr, SEED } from "../harness/draws.js";

const backends = useBackends();
const cheap = rows.filter(([, , { costly }]) => !costly);

/** The arguments of a valid call. */
function argsOf(row: Row, call: number): readonly unknown[] {
  return inWorld(backends(), (world) => (row.calls[call] as Row["calls"][0])(world));
}

/** A callable and one of its valid calls. */
const calls = fc
  .constantFrom(...cheap)
  .chain(([name, callable, row]) =>
    fc.record({
      name: fc.constant(name),
      callable: fc.constant(callable),
      row: fc.constant(row),
      call: fc.nat(row.calls.length - 1),
    }),
  );

describe("hostile arguments", () => {
  it("that answer otherwise each time are read once, and imitations of the library's objects are refused", async () => {
    const plain = new Map<string, Outcome>();
    const drawn = fc.record({ at: calls, costume: fc.nat(), later: fc.nat() });
    await fc.assert(
      fc.asyncProperty(drawn, async ({ at: { name, callable, row, call }, costume: n, later }) => {
        const costumes = costumesOf(argsOf(row, call));
        const costume = costumes[n % Math.max(1, costumes.length)];
        if (!costume) return;
        const key = `${name} ${call}`;
        const expected =
          plain.get(key) ?? (await outcomeOf(targetOf(callable), row, call, backends(), (args) => args));
        plain.set(key, expected);
        let at = later;
        const other = (): unknown => LATER[at++ % LATER.length];
        const outcome = await outcomeOf(targetOf(callable), row, call, backends(), (args) =>
          disguised(args, costume, other),
        );
        const what = `${key}: ${costume.path.join(".")} as ${costume.kind}`;
        expect(outcome.fault && `${what}: ${outcome.fault}`).toBeUndefined();
        if (outcome.result !== undefined && costume.isFaithful && isRepeatable(expected))
          expect(`${what} ${outcome.result}`).toBe(`${what} ${expected.result}`);
      }),
      { numRuns: drawsOr(1500), seed: SEED },
    );
  });

  it("of any kind are refused by typed errors with short messages, at once", async () => {
    const drawn = fc.record({ at: calls, spot: fc.nat(), value: fc.constantFrom(...Object.keys(WRONG)) });
    await fc.assert(
      fc.asyncProperty(drawn, async ({ at: { name, callable, row, call }, spot: n, value }) => {
        const spots = spotsIn(argsOf(row, call));
        const spot = spots[n % Math.max(1, spots.length)];
        if (!spot) return;
        const outcome = await outcomeOf(targetOf(callable), row, call, backends(), (args) =>
          replaced(args, spot, (WRONG[value] as () => unknown)()),
        );
        expect(
          outcome.fault && `${name} ${call}: ${spot.join(".")} is ${value}: ${outcome.fault}`,
        ).toBeUndefined();
      }),
      { numRuns: drawsOr(1500), seed: SEED },
    );
  });
});

/** Whether a call gives the same result each time: it draws nothing and names no new file. */
function isRepeatable({ result }: Outcome): boolean {
  return result !== undefined;
}
