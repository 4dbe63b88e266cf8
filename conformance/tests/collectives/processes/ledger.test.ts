/** The conclusions of a rank from the notes about calls of other ranks: which ranks make other calls, are late, or have left. */
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { Call } from "../../../../src/collectives/call.js";
import { Ledger } from "../../../../src/collectives/processes/ledger.js";
import { type EnqueuedCall, type Failed, LEAVING } from "../../../../src/collectives/processes/messages.js";

const TIMEOUT_MS = 1000;
const FLOW = { sends: 4, expects: 4 };
const callOf = (name: string): Call => ({ operation: name, text: name, key: name });

/** The ledger of rank 0 of three ranks, and the failures that it has reported. */
function watchedLedger() {
  const failures: Failed[] = [];
  let numAgreed = 0;
  const ledger = new Ledger(
    0,
    TIMEOUT_MS,
    (failure) => failures.push(failure),
    () => numAgreed++,
  );
  const membership = { id: "world", rank: 0, ranks: [0, 1, 2] };
  const enqueuedCall = (name: string): EnqueuedCall => ({
    kind: "enqueued",
    membership,
    call: callOf(name),
    flows: [undefined, FLOW, FLOW],
  });
  return {
    failures,
    agreed: () => numAgreed,
    checkWaiting: (now: number) => ledger.checkWaiting(now),
    recordDeparture: (rank: number) => ledger.recordDeparture(rank),
    recordCall: (name: string, now: number) => ledger.recordCall(enqueuedCall(name), now),
    recordNote: (from: number, name: string, sends = FLOW.sends) =>
      ledger.recordNote(from, { group: membership.id, call: callOf(name), sends, expects: FLOW.expects }),
  };
}

describe("a ledger", () => {
  it("names the rank that is late for a call, and none that is late to leave", () => {
    const cases = fc.record({
      isLeaving: fc.boolean(),
      sinceMs: fc.nat(10 * TIMEOUT_MS),
      waitedMs: fc.oneof(fc.constantFrom(TIMEOUT_MS, TIMEOUT_MS + 1), fc.nat(10 * TIMEOUT_MS)),
      arrivedRanks: fc.subarray([1, 2]),
    });
    fc.assert(
      fc.property(cases, ({ isLeaving, sinceMs, waitedMs, arrivedRanks }) => {
        const name = isLeaving ? LEAVING : "allReduce";
        const { recordCall, recordNote, checkWaiting, failures, agreed } = watchedLedger();
        recordCall(name, sinceMs);
        for (const rank of arrivedRanks) recordNote(rank, name);
        checkWaiting(sinceMs + waitedMs);
        const lateRanks =
          isLeaving || waitedMs <= TIMEOUT_MS ? [] : [1, 2].filter((rank) => !arrivedRanks.includes(rank));
        expect(failures.map(({ failure, rank }) => [failure, rank])).toEqual(
          lateRanks.map((rank) => ["deadline", rank]),
        );
        expect(agreed()).toBe(arrivedRanks.length);
      }),
    );
  });

  it("names the rank that leaves before a call that waits for it, and none behind its last call", () => {
    for (const order of ["called before", "called after"]) {
      const { recordCall, recordNote, recordDeparture, failures } = watchedLedger();
      recordNote(1, "allReduce");
      recordNote(2, "allReduce");
      if (order === "called before") recordCall("allReduce", 0);
      recordDeparture(1);
      if (order === "called after") recordCall("allReduce", 0);
      expect(failures).toEqual([]);
      recordCall("allGather", 0);
      expect(failures[0]).toMatchObject({ failure: "lost", rank: 1 });
    }
  });

  it.each([
    ["leaves the group", LEAVING, 4, { failure: "lost", rank: 1, message: /rank 1 has left/ }],
    ["makes another call", "allGather", 4, { failure: "disagreement", rank: 1, message: /called allGather/ }],
    ["sends other bytes", "allReduce", 5, { failure: "disagreement", rank: 1, message: /sent 5 bytes/ }],
  ] as const)("names the rank that %s", (_what, name, sends, { message, ...expected }) => {
    for (const isFirst of [false, true]) {
      const { recordCall, recordNote, failures } = watchedLedger();
      if (isFirst) recordCall("allReduce", 0);
      recordNote(1, name, sends);
      if (!isFirst) recordCall("allReduce", 0);
      expect(failures).toEqual([{ kind: "failed", ...expected, message: expect.stringMatching(message) }]);
    }
  });
});
