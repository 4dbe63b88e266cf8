/**
 * Detects mismatched calls of device groups. A device cannot detect that ranks enqueue different operations. Therefore every rank
 * sends a note about each call to the ranks that take part in it, and each rank compares the received notes with its own calls.
 * This runs on the messaging thread.
 */
import { type Call, disagreement } from "../call.js";
import type { Membership } from "../communicator.js";
import { type EnqueuedCall, type Failed, failed, LEAVING, type Note } from "./messages.js";

interface OwnCall {
  readonly note: Note;
  readonly membership: Membership;
  /** The rank of the other member in the group. */
  readonly member: number;
  readonly startTime: number;
}

export class Ledger {
  readonly #ownCalls = new Map<string, OwnCall[]>();
  readonly #receivedNotes = new Map<string, Note[]>();
  readonly #departed = new Set<number>();

  constructor(
    private readonly rank: number,
    private readonly timeoutMs: number,
    private readonly fail: (failure: Failed) => void,
    /** Called for each note that matches a call of this rank. */
    private readonly agreed: () => void,
  ) {}

  /** Records a call of this rank. */
  recordCall({ membership, call, flows }: EnqueuedCall, time: number): void {
    for (const [member, flow] of flows.entries()) {
      if (!flow) continue;
      const peer = membership.ranks[member] as number;
      const note: Note = { group: membership.id, call, ...flow };
      this.#put(this.#ownCalls, peer, membership.id, {
        note,
        membership,
        member,
        startTime: time,
      });
      this.#compare(peer, membership.id);
    }
  }

  /** Records a note about a call of another rank. */
  recordNote(from: number, note: Note): void {
    this.#put(this.#receivedNotes, from, note.group, note);
    this.#compare(from, note.group);
  }

  /** Records that a rank has left and makes no more calls. */
  recordDeparture(rank: number): void {
    this.#departed.add(rank);
    this.checkWaiting(0);
  }

  /** Fails the job if this rank waits for a rank that has left, or waits longer than the time limit. */
  checkWaiting(time: number): void {
    for (const waiting of this.#ownCalls.values()) {
      const first = waiting[0];
      if (!first) continue;
      const { note, membership, member, startTime } = first;
      const peer = membership.ranks[member] as number;
      if (this.#departed.has(peer)) {
        const message = `rank ${peer} has left the group, and rank ${this.rank} waits for it in ${note.call.text}`;
        this.fail(failed("lost", peer, message));
      } else if (time - startTime > this.timeoutMs && note.call.key !== LEAVING) {
        const message = `rank ${peer} did not come to ${note.call.text}, where rank ${this.rank} waited ${this.timeoutMs} ms`;
        this.fail(failed("deadline", peer, message));
      }
    }
  }

  #put<T>(queues: Map<string, T[]>, peer: number, group: string, item: T): void {
    const key = `${group}:${peer}`;
    const list = queues.get(key);
    if (list) list.push(item);
    else queues.set(key, [item]);
  }

  #compare(peer: number, group: string): void {
    const key = `${group}:${peer}`;
    const [ownCalls, recordNote] = [this.#ownCalls.get(key), this.#receivedNotes.get(key)];
    while (ownCalls?.length && recordNote?.length) {
      const [ownCall, peerNote] = [ownCalls.shift() as OwnCall, recordNote.shift() as Note];
      if (this.#failIfLeaving(peer, ownCall.note.call, peerNote.call)) return;
      const { note, membership, member } = ownCall;
      const message = { call: peerNote.call, bytes: { length: peerNote.sends } };
      const wrong = disagreement(membership, note.call, member, message, note.expects);
      const mismatch =
        peerNote.expects === note.sends
          ? undefined
          : `rank ${this.rank} sent ${note.sends} bytes where rank ${peer} expects ${peerNote.expects}, in ${note.call.text}; give the same rows on both`;
      if (wrong) this.fail(failed(wrong.failure, wrong.rank, withoutOperation(wrong.message, note.call)));
      else if (mismatch) this.fail(failed("disagreement", this.rank, mismatch));
      else this.agreed();
    }
    if (this.#departed.has(peer)) this.checkWaiting(0);
  }

  /** Fails the job if one of two ranks leaves the group while the other makes a call. */
  #failIfLeaving(peer: number, ownCall: Call, peerCall: Call): boolean {
    if ((ownCall.key === LEAVING) === (peerCall.key === LEAVING)) return false;
    const [departedRank, waiting, call] =
      peerCall.key === LEAVING ? [peer, this.rank, ownCall] : [this.rank, peer, peerCall];
    const message = `rank ${departedRank} has left the group, and rank ${waiting} waits for it in ${call.text}`;
    this.fail(failed("lost", departedRank, message));
    return true;
  }
}

function withoutOperation(message: string, { operation }: Call): string {
  return message.replace(`${operation}: `, "");
}
