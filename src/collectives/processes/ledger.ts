/**
 * Detects mismatched calls of device groups. A device cannot detect that ranks enqueue different operations. Therefore every rank
 * sends a note about each call to the ranks concerned, and each rank compares the notes that it receives with its own calls. This
 * runs on the messaging thread.
 */
import { type Call, disagreement } from "../call.js";
import type { Membership } from "../communicator.js";
import { type Failed, failed, LEAVING, type Made, type Note } from "./messages.js";

interface Own {
  readonly note: Note;
  readonly of: Membership;
  /** The rank of the other member in the group. */
  readonly member: number;
  readonly since: number;
}

export class Ledger {
  readonly #own = new Map<string, Own[]>();
  readonly #heard = new Map<string, Note[]>();
  readonly #left = new Set<number>();

  constructor(
    private readonly rank: number,
    private readonly timeoutMs: number,
    private readonly fail: (failure: Failed) => void,
    /** Called for each note that matches a call of this rank. */
    private readonly agreed: () => void,
  ) {}

  /** Records a call of this rank. */
  made({ of, call, flows }: Made, now: number): void {
    for (const [member, flow] of flows.entries()) {
      if (!flow) continue;
      const peer = of.ranks[member] as number;
      const note: Note = { group: of.id, call, ...flow };
      this.#put(this.#own, peer, of.id, { note, of, member, since: now });
      this.#compare(peer, of.id);
    }
  }

  /** Records a note about a call of another rank. */
  heard(from: number, note: Note): void {
    this.#put(this.#heard, from, note.group, note);
    this.#compare(from, note.group);
  }

  /** Records that a rank has left and makes no more calls. */
  left(rank: number): void {
    this.#left.add(rank);
    this.look(0);
  }

  /** Fails the job if this rank waits for a rank that has left, or waits longer than the time limit. */
  look(now: number): void {
    for (const waiting of this.#own.values()) {
      const first = waiting[0];
      if (!first) continue;
      const { note, of, member, since } = first;
      const peer = of.ranks[member] as number;
      if (this.#left.has(peer)) {
        const message = `rank ${peer} has left the group, and rank ${this.rank} waits for it in ${note.call.text}`;
        this.fail(failed("lost", peer, message));
      } else if (now - since > this.timeoutMs && note.call.key !== LEAVING) {
        const message = `rank ${peer} did not come to ${note.call.text}, where rank ${this.rank} waited ${this.timeoutMs} ms`;
        this.fail(failed("deadline", peer, message));
      }
    }
  }

  #put<T>(into: Map<string, T[]>, peer: number, group: string, what: T): void {
    const key = `${group}:${peer}`;
    const list = into.get(key);
    if (list) list.push(what);
    else into.set(key, [what]);
  }

  #compare(peer: number, group: string): void {
    const key = `${group}:${peer}`;
    const [own, heard] = [this.#own.get(key), this.#heard.get(key)];
    while (own?.length && heard?.length) {
      const [mine, theirs] = [own.shift() as Own, heard.shift() as Note];
      if (this.#leaves(peer, mine.note.call, theirs.call)) return;
      const { note, of, member } = mine;
      const message = { call: theirs.call, bytes: { length: theirs.sends } };
      const wrong = disagreement(of, note.call, member, message, note.expects);
      const unwanted =
        theirs.expects === note.sends
          ? undefined
          : `rank ${this.rank} sent ${note.sends} bytes where rank ${peer} expects ${theirs.expects}, in ${note.call.text}; give the same rows on both`;
      if (wrong) this.fail(failed(wrong.failure, wrong.rank, withoutOperation(wrong.message, note.call)));
      else if (unwanted) this.fail(failed("disagreement", this.rank, unwanted));
      else this.agreed();
    }
    if (this.#left.has(peer)) this.look(0);
  }

  /** Fails the job if one of two ranks leaves the group while the other makes a call. */
  #leaves(peer: number, mine: Call, theirs: Call): boolean {
    if ((mine.key === LEAVING) === (theirs.key === LEAVING)) return false;
    const [gone, stays, call] = theirs.key === LEAVING ? [peer, this.rank, mine] : [this.rank, peer, theirs];
    const message = `rank ${gone} has left the group, and rank ${stays} waits for it in ${call.text}`;
    this.fail(failed("lost", gone, message));
    return true;
  }
}

function withoutOperation(message: string, { operation }: Call): string {
  return message.replace(`${operation}: `, "");
}
