/** What ranks that are processes tell each other, and what a process and its thread that talks to them do. */
import type { MessagePort } from "node:worker_threads";
import type { DistributedFailure } from "../../errors.js";
import type { Call } from "../call.js";
import type { Membership } from "../communicator.js";
import type { Flow } from "../devices/flow.js";
import type { Place } from "./place.js";

/** Grows with every change of what follows. */
export const PROTOCOL = 2;

/** Why the job cannot go on. */
export interface Failed {
  readonly kind: "failed";
  readonly failure: DistributedFailure;
  readonly rank: number | undefined;
  readonly message: string;
}

/** Bytes of one rank for another. */
export interface Data {
  readonly kind: "data";
  readonly from: number;
  readonly to: number;
  /** The group. */
  readonly group: string;
  readonly call: Call;
  readonly bytes: Uint8Array<ArrayBuffer>;
}

/** A call that one rank has enqueued on its device, as another rank it concerns learns of it. */
export interface Note extends Flow {
  readonly group: string;
  readonly call: Call;
}

/** Calls of one rank, for another. */
export interface Notes {
  readonly kind: "notes";
  readonly from: number;
  readonly to: number;
  readonly notes: readonly Note[];
}

/** To the thread: a call that this rank has enqueued on its device, and what it sends to and expects from each member. */
export interface Made {
  readonly kind: "made";
  readonly of: Membership;
  readonly call: Call;
  readonly flows: readonly (Flow | undefined)[];
}

/** The call of a rank that makes no other any more. */
export const LEAVING = "dispose";

/** A rank leaves in order. */
export interface Left {
  readonly kind: "left";
  readonly rank: number;
}

/** How a rank asks to be let in. */
export interface Hello {
  readonly kind: "hello";
  readonly protocol: number;
  readonly rank: number;
  readonly size: number;
}

/** All ranks are here. */
export interface Welcome {
  readonly kind: "welcome";
}

/** Whether a rank can still be reached; it needs no answer. */
export interface Ping {
  readonly kind: "ping";
}

/** To a rank that has left: all that it said was passed on. */
export interface Goodbye {
  readonly kind: "goodbye";
}

export type Message = Data | Notes | Failed | Left;
export type Frame = Message | Hello | Welcome | Ping | Goodbye;

/** From the thread: a failure of this process is on its way to the others. */
export interface Told {
  readonly kind: "told";
}

/** To the thread: the process ends. */
export interface Close {
  readonly kind: "close";
}

/** From the thread: it has no connections any more. */
export interface Closed {
  readonly kind: "closed";
}

/** What the thread is started with. */
export interface ThreadData {
  readonly place: Place;
  /** Carries `Message` both ways, `Made`, `Close`, `Told` and `Closed`. */
  readonly port: MessagePort;
  /**
   * Three i32. One grows with every message for the process, which may sleep on it; one is 1 once the job has failed and the
   * process can learn why; one counts the members that made a noted call too.
   */
  readonly signal: SharedArrayBuffer;
}

/** Frames as ZeroMQ carries them: a header, and the bytes behind it. */
export function framesOf(frame: Frame): readonly (string | Uint8Array)[] {
  if (frame.kind !== "data") return [JSON.stringify(frame)];
  const { bytes, ...header } = frame;
  return [JSON.stringify(header), bytes];
}

export function frameOf(frames: readonly Uint8Array[]): Frame {
  const [header, bytes] = frames;
  const frame = JSON.parse(Buffer.from(header ?? []).toString()) as Frame;
  return frame.kind === "data" ? { ...frame, bytes: new Uint8Array(bytes ?? []) } : frame;
}

export function failed(failure: DistributedFailure, rank: number | undefined, message: string): Failed {
  return { kind: "failed", failure, rank, message };
}
