/** The messages between ranks, and between a process and its messaging thread. */
import type { MessagePort } from "node:worker_threads";
import type { DistributedFailure } from "../../errors.js";
import type { Call } from "../call.js";
import type { Membership } from "../communicator.js";
import type { Flow } from "../devices/flow.js";
import type { Rendezvous } from "./rendezvous.js";

/** The version of the protocol. It changes with every change of the messages below. */
export const PROTOCOL = 2;

/** The job has failed, with the reason. */
export interface Failed {
  readonly kind: "failed";
  readonly failure: DistributedFailure;
  readonly rank: number | undefined;
  readonly message: string;
}

/** Bytes from one rank to another. */
export interface Data {
  readonly kind: "data";
  readonly from: number;
  readonly to: number;
  /** The id of the group. */
  readonly group: string;
  readonly call: Call;
  readonly bytes: Uint8Array<ArrayBuffer>;
}

/** A note: a call that the sending rank has enqueued on its device. */
export interface Note extends Flow {
  readonly group: string;
  readonly call: Call;
}

/** Notes from one rank to another. */
export interface Notes {
  readonly kind: "notes";
  readonly from: number;
  readonly to: number;
  readonly notes: readonly Note[];
}

/**
 * To the messaging thread: this rank has enqueued a call on its device. `flows` has the bytes that it sends to and expects from
 * each member.
 */
export interface EnqueuedCall {
  readonly kind: "enqueued";
  readonly membership: Membership;
  readonly call: Call;
  readonly flows: readonly (Flow | undefined)[];
}

/** The name of the call that a rank notes when it leaves a group. */
export const LEAVING = "dispose";

/** A rank has left the job. */
export interface Left {
  readonly kind: "left";
  readonly rank: number;
}

/** A rank asks to be admitted. */
export interface Hello {
  readonly kind: "hello";
  readonly protocol: number;
  readonly rank: number;
  readonly size: number;
}

/** All ranks have joined. */
export interface Welcome {
  readonly kind: "welcome";
}

/** Tests whether a rank can be reached. The receiver does not reply. */
export interface Ping {
  readonly kind: "ping";
}

/** To a rank that has left: all its messages were forwarded. */
export interface Goodbye {
  readonly kind: "goodbye";
}

export type Message = Data | Notes | Failed | Left;
export type Frame = Message | Hello | Welcome | Ping | Goodbye;

/** From the messaging thread: a failure of this process was sent to the other ranks. */
export interface Reported {
  readonly kind: "reported";
}

/** To the messaging thread: the process exits. */
export interface Close {
  readonly kind: "close";
}

/** From the messaging thread: its connections are closed. */
export interface Closed {
  readonly kind: "closed";
}

/** The data that the messaging thread receives at its start. */
export interface ThreadData {
  readonly rendezvous: Rendezvous;
  /** The port for `Message` in both directions, and for `EnqueuedCall`, `Close`, `Reported` and `Closed`. */
  readonly port: MessagePort;
  /**
   * Three i32 values. [0] counts the messages to the main thread, which waits on it. [1] is 1 if the job has failed. [2] counts
   * the notes that other ranks' calls have matched.
   */
  readonly signal: SharedArrayBuffer;
}

/** Converts a message to ZeroMQ frames: a header in JSON and, if there are bytes, a second frame with them. */
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
