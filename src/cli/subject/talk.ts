/** Exchanges messages with a subject: one question, then one answer. */
import { BackendError, LockstepError } from "../../errors.js";
import { encodeFrame, Frame, type FrameTensor, MESSAGE_KEY } from "../../io/frames/frame.js";
import type { FrameReader } from "../../io/frames/frame-reader.js";
import { type JsonObject, parseJsonObject } from "../../io/json/json-object.js";

/** A message to or from a subject: a JSON object, and tensors. */
export interface Message {
  readonly fields: JsonObject;
  readonly tensors: readonly FrameTensor[];
}

/** The answer of a subject. */
export interface Reply {
  readonly fields: JsonObject;
  readonly frame: Frame;
}

/** The error if the subject gave no valid answer: it ended, timed out, or sent something else. */
export class SubjectError extends BackendError {}

/** The program at the other end of a pair of streams. */
export interface Peer {
  readonly frames: FrameReader;
  /** Whether the program is running and can answer. */
  readonly isRunning: boolean;
  write(bytes: Uint8Array): void;
  /** Describes the end of the program, after it has ended. Throws `SubjectError` if it was never started. */
  exitStatus(): Promise<string>;
  /** The last characters of its standard error, after a separator. */
  errorOutput(): string;
  /** Kills the program. */
  kill(): void;
}

/** Sends a message that has no answer. */
export function send(peer: Peer, { fields, tensors }: Message): void {
  for (const part of encodeFrame("message", tensors, { [MESSAGE_KEY]: JSON.stringify(fields) }))
    peer.write(part);
}

/**
 * Sends a message and returns the reply. Throws `SubjectError` if no reply arrives within `deadline` milliseconds or the reply is
 * invalid; the subject is then killed.
 */
export async function request(peer: Peer, message: Message, deadline: number): Promise<Reply> {
  send(peer, message);
  let timer: NodeJS.Timeout | undefined;
  const timeout = new Promise<"late">((resolve) => {
    timer = setTimeout(resolve, deadline, "late");
  });
  try {
    const bytes = await Promise.race([peer.frames.next(), timeout]);
    if (bytes === "late")
      throw new SubjectError(`the subject gave no answer within ${deadline / 1000} s${peer.errorOutput()}`);
    if (!bytes)
      throw new SubjectError(
        `the subject ${await peer.exitStatus()} instead of answering${peer.errorOutput()}`,
      );
    return replyOf(bytes);
  } catch (error) {
    peer.kill();
    if (error instanceof SubjectError || !(error instanceof LockstepError)) throw error;
    throw new SubjectError(
      `the subject answered with no valid frame: ${error.message}${peer.errorOutput()}`,
      {
        cause: error,
      },
    );
  } finally {
    clearTimeout(timer);
  }
}

function replyOf(bytes: Uint8Array): Reply {
  const frame = Frame.decode("answer", bytes);
  const text = frame.metadata[MESSAGE_KEY];
  const fields = parseJsonObject(text);
  if (fields) return { fields, frame };
  throw new SubjectError(`the subject's answer has no JSON object in its metadata "${MESSAGE_KEY}"`);
}
