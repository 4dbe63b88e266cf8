/** The process of a subject: it is asked by frames and answers by frames, one at a time. */
import { BackendError, LockstepError } from "../../errors.js";
import { encodeFrame, Frame, type FrameTensor } from "../../io/frames/frame.js";
import { FrameReader } from "../../io/frames/frame-reader.js";
import { isObject, type JsonObject } from "../../io/header/header.js";
import { type Child, type Ended, startChild } from "../child-group.js";

/** The metadata key of a frame that holds the message. */
const KEY = "lockstep";

/** How much of what the subject wrote to its standard error is repeated in errors. */
const LAST_WORDS = 2000;

/** What is said to a subject or by one: a JSON object, and tensors. */
export interface Message {
  readonly say: JsonObject;
  readonly tensors: readonly FrameTensor[];
}

/** What a subject answered. */
export interface Reply {
  readonly say: JsonObject;
  readonly frame: Frame;
}

/** Why a subject gave no answer: it ended, took too long or answered with something else. */
export class SubjectError extends BackendError {}

/** A process that runs a command line. */
export class SubjectProcess {
  readonly #child: Child;
  readonly #frames: FrameReader;
  readonly #ended: Promise<Ended>;
  #lastWords = "";
  #hasEnded = false;

  constructor(private readonly command: string) {
    this.#child = startChild(command, [], { stdio: ["pipe", "pipe", "pipe"], shell: true });
    const { stdin, stdout, stderr } = this.#child.streams;
    this.#frames = new FrameReader(
      "the subject",
      stdout as NodeJS.ReadableStream as AsyncIterable<Uint8Array>,
    );
    stderr?.on("data", (text: Buffer) => {
      this.#lastWords = (this.#lastWords + text.toString()).slice(-LAST_WORDS);
    });
    // what a process that has ended does not read is told by how it ended
    stdin?.on("error", () => {});
    this.#ended = this.#child.ended.finally(() => {
      this.#hasEnded = true;
    });
    this.#ended.catch(() => {});
  }

  /** Whether it can be asked. */
  get isRunning(): boolean {
    return !this.#hasEnded;
  }

  /**
   * Sends a message and returns the reply. Throws `SubjectError` if there is none within `deadline` milliseconds or no valid one;
   * the process is ended then.
   */
  async ask({ say, tensors }: Message, deadline: number): Promise<Reply> {
    for (const part of encodeFrame("message", tensors, { [KEY]: JSON.stringify(say) }))
      this.#child.streams.stdin?.write(part);
    let timer: NodeJS.Timeout | undefined;
    const timeout = new Promise<"late">((resolve) => {
      timer = setTimeout(resolve, deadline, "late");
    });
    try {
      const bytes = await Promise.race([this.#frames.next(), timeout]);
      if (bytes === "late")
        throw new SubjectError(`the subject gave no answer within ${deadline / 1000} s${this.#words()}`);
      if (!bytes)
        throw new SubjectError(`the subject ${await this.#end()} instead of answering${this.#words()}`);
      return replyOf(bytes);
    } catch (error) {
      this.kill();
      if (error instanceof SubjectError || !(error instanceof LockstepError)) throw error;
      throw new SubjectError(`the subject answered with no valid frame: ${error.message}${this.#words()}`, {
        cause: error,
      });
    } finally {
      clearTimeout(timer);
    }
  }

  async #end(): Promise<string> {
    const { status, signal } = await this.#ended.catch((cause: unknown) => {
      throw new SubjectError(`the subject cannot be started: ${this.command}: ${String(cause)}`, { cause });
    });
    return signal ? `was ended by ${signal}` : `ended with status ${status}`;
  }

  #words(): string {
    const text = this.#lastWords.trim();
    return text === "" ? "" : `; it wrote: ${text}`;
  }

  /** Ends the process and those that it started. */
  kill(): void {
    this.#child.kill("SIGKILL");
  }
}

function replyOf(bytes: Uint8Array): Reply {
  const frame = Frame.decode("answer", bytes);
  const text = frame.metadata[KEY];
  const say: unknown = text === undefined ? undefined : parsed(text);
  if (isObject(say)) return { say, frame };
  throw new SubjectError(`the subject's answer has no JSON object in its metadata "${KEY}"`);
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
