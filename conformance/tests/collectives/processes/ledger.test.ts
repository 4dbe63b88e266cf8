/** The conclusions of a rank from the notes about calls of other ranks: which ranks make other calls, are late, or have left. */
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { Call } from "../../../../src/collectives/call.js";
import { Ledger } from "../../../../src/collectives/processes/ledger.js";
import { type EnqueuedCall, type Failed, LEAVING } from "../../../../src/collectives/processes/messages.js";

const TIMEOUT_MS = 1000;
const FLOW = { sends: 4, expects: 4 };
const callOf = (name: string): Call => ({ operation: name, text: name, key: name });

/** The ledger of rank 0 of three, and what it has reported. */
function watched() {
  const failures: Failed[] = [];
  let agreed = 0;
  const ledger = new Ledger(
    0,
    TIMEOUT_MS,
    (failure) => failures.push(failure),
    () => agreed++,
  );
  const of = { id: "world", rank: 0, ranks: [0, 1, 2] };
  const made = (name: string): EnqueuedCall => ({
    kind: "enqueued",
    membership: of,
    call: callOf(name),
    flows: [undefined, FLOW, FLOW],
  });
  return {
    failures,
    agreed: () => agreed,
    look: (now: number) => ledger.checkWaiting(now),
    left: (rank: number) => ledger.recordDeparture(rank),
    calls: (name: string, now: number) => ledger.recordCall(made(name), now),
    hears: (from: number, name: string, sends = FLOW.sends) =>
      ledger.recordNote(from, { group: of.id, call: callOf(name), sends, expects: FLOW.expects }),
  };
}

describe("a ledger", () => {
  it("names the rank that is late for a call, and none that is late to leave", () => {
    const drawn = fc.record({
      isLeaving: fc.boolean(),
      since: fc.nat(10 * TIMEOUT_MS),
      waited: fc.oneof(fc.constantFrom(TIMEOUT_MS, TIMEOUT_MS + 1), fc.nat(10 * TIMEOUT_MS)),
      come: fc.subarray([1, 2]),
    });
    fc.assert(
      fc.property(drawn, ({ isLeaving, since, waited, come }) => {
        const name = isLeaving ? LEAVING : "allReduce";
        const { calls, hears, look, failures, agreed } = watched();
        calls(name, since);
        for (const rank of come) hears(rank, name);
        look(since + waited);
        const late = isLeaving || waited <= TIMEOUT_MS ? [] : [1, 2].filter((rank) => !come.includes(rank));
        expect(failures.map(({ failure, rank }) => [failure, rank])).toEqual(
          late.map((rank) => ["deadline", rank]),
        );
        expect(agreed()).toBe(come.length);
      }),
    );
  });

  it("names the rank that leaves before a call that waits for it, and none behind its last call", () => {
    for (const order of ["called before", "called after"]) {
      const { calls, hears, left, failures } = watched();
      hears(1, "allReduce");
      hears(2, "allReduce");
      if (order === "called before") calls("allReduce", 0);
      left(1);
      if (order === "called after") calls("allReduce", 0);
      expect(failures).toEqual([]);
      calls("allGather", 0);
      expect(failures[0]).toMatchObject({ failure: "lost", rank: 1 });
    }
  });

  it.each([
    ["leaves the group", LEAVING, 4, { failure: "lost", rank: 1, message: /rank 1 has left/ }],
    ["makes another call", "allGather", 4, { failure: "disagreement", rank: 1, message: /called allGather/ }],
    ["sends other bytes", "allReduce", 5, { failure: "disagreement", rank: 1, message: /sent 5 bytes/ }],
  ] as const)("names the rank that %s", (_what, name, sends, { message, ...wanted }) => {
    for (const isFirst of [false, true]) {
      const { calls, hears, failures } = watched();
      if (isFirst) calls("allReduce", 0);
      hears(1, name, sends);
      if (!isFirst) calls("allReduce", 0);
      expect(failures).toEqual([{ kind: "failed", ...wanted, message: expect.stringMatching(message) }]);
    }
  });
});
