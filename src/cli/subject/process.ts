/** Subjects as processes: the process of a command line, or the parent of this process. */
import { FrameReader } from "../../io/frames/frame-reader.js";
import { type Child, type Ended, startChild } from "../child-group.js";
import type { BinaryStreams } from "../session.js";
import { type Peer, SubjectError } from "./talk.js";

/** The maximum number of characters of the subject's standard error in an error message. */
const LAST_WORDS = 2000;

/** A process that runs a command line. */
export class SubjectProcess implements Peer {
  readonly frames: FrameReader;
  readonly #child: Child;
  readonly #ended: Promise<Ended>;
  #stderrTail = "";
  #isRunning = true;

  /** Throws `SubjectError` for a command line that a shell cannot run. */
  constructor(private readonly command: string) {
    try {
      this.#child = startChild(command, [], { stdio: ["pipe", "pipe", "pipe"], shell: true });
    } catch (cause) {
      throw new SubjectError(`the subject cannot be started: ${command}: ${String(cause)}`, { cause });
    }
    const { stdin, stdout, stderr } = this.#child.streams;
    this.frames = new FrameReader(
      "the subject",
      stdout as NodeJS.ReadableStream as AsyncIterable<Uint8Array>,
    );
    stderr?.on("data", (text: Buffer) => {
      this.#stderrTail = (this.#stderrTail + text.toString()).slice(-LAST_WORDS);
    });
    // a failed write to an ended process is reported by its exit status
    stdin?.on("error", () => {});
    this.#ended = this.#child.ended.finally(() => {
      this.#isRunning = false;
    });
    this.#ended.catch(() => {});
  }

  get isRunning(): boolean {
    return this.#isRunning;
  }

  write(bytes: Uint8Array): void {
    this.#child.streams.stdin?.write(bytes);
  }

  async exitStatus(): Promise<string> {
    const { status, signal } = await this.#ended.catch((cause: unknown) => {
      throw new SubjectError(`the subject cannot be started: ${this.command}: ${String(cause)}`, { cause });
    });
    return signal ? `was ended by ${signal}` : `ended with status ${status}`;
  }

  errorOutput(): string {
    const text = this.#stderrTail.trim();
    return text === "" ? "" : `; it wrote: ${text}`;
  }

  /** Kills the process and its children. */
  kill(): void {
    this.#isRunning = false;
    this.#child.kill("SIGKILL");
  }
}

/** The parent process, which exchanges frames on this process's standard streams. */
export class Parent implements Peer {
  readonly frames: FrameReader;
  isRunning = true;

  /** Throws `ArgumentError` if standard input is a terminal. */
  constructor(private readonly streams: BinaryStreams) {
    this.frames = new FrameReader("standard input", streams.read());
  }

  write(bytes: Uint8Array): void {
    this.streams.write(bytes);
  }

  async exitStatus(): Promise<string> {
    return "closed its end of the pipe";
  }

  errorOutput(): string {
    return "";
  }

  kill(): void {
    this.isRunning = false;
  }
}
