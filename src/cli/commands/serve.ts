/** `lockstep serve`: runs commands for a program in another language. */
import { ArgumentError, FileError } from "../../errors.js";
import { encodeFrame, Frame, MESSAGE_KEY } from "../../io/frames/frame.js";
import { FrameReader } from "../../io/frames/frame-reader.js";
import { isObject, type JsonObject } from "../../io/header/header.js";
import { JsonError, parseJson } from "../../io/json/json-read.js";
import { nearest } from "../../text/nearest.js";
import { defineCommand } from "../command.js";
import type { Command, ExitCode } from "../command-types.js";
import { failureOf } from "../failure.js";
import { MessageFiles } from "../message-files.js";
import { flag } from "../options.js";
import { Backends, NO_BINARY } from "../session.js";

/** The fields of a request: a command line, and the id that the response repeats so that the client can match it. */
function requestOf({ metadata, path }: Frame): JsonObject {
  const text = metadata[MESSAGE_KEY];
  if (text === undefined)
    throw new ArgumentError(
      `${path}: its metadata have no "${MESSAGE_KEY}"; give {"id": …, "args": ["quantize", …]} there, as JSON`,
    );
  try {
    const request = parseJson(text, exactNumber);
    return isObject(request) ? request : {};
  } catch (cause) {
    if (!(cause instanceof JsonError)) throw cause;
    throw new ArgumentError(`${path}: the metadata "${MESSAGE_KEY}" ${cause.message}`, { cause });
  }
}

/** The command line of a request. */
function argsOf({ path }: Frame, { args }: JsonObject): readonly string[] {
  if (Array.isArray(args) && args.every((each) => typeof each === "string")) return args;
  throw new ArgumentError(
    `${path}: "args" in the metadata "${MESSAGE_KEY}" must be a list of strings, the command and its arguments`,
  );
}

/** Reads a number that the response can repeat exactly. Throws `JsonError` for other numbers. */
function exactNumber(text: string): number {
  const number = Number(text);
  if (Number.isFinite(number) && (!Number.isInteger(number) || Number.isSafeInteger(number))) return number;
  throw new JsonError(`has the number ${text.slice(0, 40)}, which is beyond 2^53; send it as a string`);
}

/** Adds the options of `defaults` that the arguments lack. */
function withDefaults(
  { options }: Command,
  args: readonly string[],
  defaults: Readonly<Record<string, string | undefined>>,
): string[] {
  const isGiven = (name: string): boolean =>
    args.some((arg) => arg === `--${name}` || arg.startsWith(`--${name}=`));
  const added = Object.entries(defaults).flatMap(([name, text]) =>
    text === undefined || !(name in options) || isGiven(name)
      ? []
      : [text === "" ? `--${name}` : `--${name}=${text}`],
  );
  return [...args, ...added];
}

/** Runs commands that are read from frames, on backends that stay open. */
export class Server {
  readonly #backends = new Backends();

  constructor(
    private readonly commands: readonly Command[],
    private readonly defaults: Readonly<Record<string, string | undefined>>,
  ) {}

  /** The response to one request, as the bytes of a frame. */
  async respond(name: string, bytes: Uint8Array): Promise<readonly Uint8Array[]> {
    let id: unknown = null;
    try {
      const frame = Frame.decode(name, bytes);
      const request = requestOf(frame);
      id = request.id ?? null;
      const files = new MessageFiles(frame);
      const printed = { text: "" };
      const status = await this.#run(argsOf(frame, request), files, printed);
      const response = JSON.stringify({ id, status, result: printedValue(printed.text) });
      return encodeFrame(name, files.tensors, { ...files.metadata, [MESSAGE_KEY]: response });
    } catch (error) {
      return failureFrame(name, id, error);
    }
  }

  #run(args: readonly string[], files: MessageFiles, printed: { text: string }): Promise<ExitCode> {
    const [name, ...otherArgs] = args;
    const command = this.commands.find((each) => each.name === name);
    if (!command) {
      const names = this.commands.map((each) => each.name);
      const problem =
        name === undefined ? "no command was given" : `"${name}" is not served${nearest(name, names)}`;
      throw new ArgumentError(`${problem}; there are ${names.join(", ")}`);
    }
    const stdout = {
      write: (text: string) => {
        printed.text += text;
      },
    };
    const io = { stdout, stderr: { write: () => {} }, binary: NO_BINARY, files, backends: this.#backends };
    return command.run(io, withDefaults(command, otherArgs, this.defaults));
  }

  async dispose(): Promise<void> {
    await this.#backends.dispose();
  }
}

/** The response to a request that failed. If the id is too long for a frame, the response has none. */
function failureFrame(name: string, id: unknown, error: unknown): readonly Uint8Array[] {
  const response = (id: unknown): string => JSON.stringify({ id, error: failureOf(error) });
  const frame = (id: unknown): readonly Uint8Array[] =>
    encodeFrame(name, [], { [MESSAGE_KEY]: response(id) });
  try {
    return frame(id);
  } catch (cause) {
    if (!(cause instanceof FileError)) throw cause;
    return frame(null);
  }
}

/** The output of a command: the parsed JSON value, or the string if the output is not JSON. */
function printedValue(printed: string): unknown {
  try {
    return JSON.parse(printed);
  } catch {
    return printed;
  }
}

/** The command `serve`, which runs the other commands. */
export function serveCommand(commands: readonly Command[]): Command {
  return defineCommand({
    name: "serve",
    summary: "runs the commands that another program sends, in any language, and sends it the results",
    details: [
      `A frame is a safetensors file behind its length, 8 bytes, little endian. A request has a command line in its metadata: "${MESSAGE_KEY}": {"id": 1, "args": ["quantize", "in", "-o", "out", "--quantizer", "mxfp8"]}. The file "in" consists of the tensors whose names begin with "in/". The response has the tensors of the files that the command wrote, and {"id": 1, "status": 0, "result": …} or {"id": 1, "error": {"code": …, "message": …}}. docs/protocol.md tells more. It ends with standard input.`,
    ],
    example: "--stdio",
    inputs: [],
    // standard output carries frames
    without: ["json"],
    options: { stdio: { ...flag("reads standard input and writes standard output"), required: true } },
    async run({ session }) {
      const { backend, threads } = session.general;
      const defaults = { json: "", backend, threads: threads === undefined ? undefined : String(threads) };
      const server = new Server(commands, defaults);
      const frames = new FrameReader("standard input", session.io.binary.readBlocking());
      try {
        let count = 0;
        for (let bytes = await frames.next(); bytes; bytes = await frames.next())
          for (const part of await server.respond(`request ${++count}`, bytes)) session.io.binary.write(part);
      } finally {
        await server.dispose();
      }
      return 0;
    },
  });
}
