// Another library in a separate process, which runs its cases on the same GPU on request.
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

/**
 * Starts a Python program of this folder. The program prints its version and the names of its cases as one line of JSON. It then
 * answers each line "NAME<TAB>CALLS" with the seconds per call. A third field with the name of a clock selects that clock. If the
 * program does not start, prints the reason and returns undefined.
 */
export async function openServer(script, args, library) {
  const path = fileURLToPath(new URL(script, import.meta.url));
  const child = spawn("python3", [path, ...args.map(String)], { stdio: ["pipe", "pipe", "pipe"] });
  let reason = "";
  child.stderr.on("data", (text) => {
    reason += text;
  });
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const next = async () => {
    const { value, done } = await lines.next();
    if (!done) return JSON.parse(value);
    throw new Error(reason.trim() || "python3 could not be started");
  };
  child.on("error", () => {});
  // a write to a process that has ended; the next answer has the reason
  child.stdin.on("error", () => {});
  try {
    const { version, cases } = await next();
    // the cases that it could not prepare, and warnings
    process.stderr.write(reason);
    const seconds = (name, calls, clock) => {
      child.stdin.write(`${name}\t${calls}${clock ? `\t${clock}` : ""}\n`);
      return next();
    };
    return { version, cases, seconds, close: () => child.stdin.end() };
  } catch (error) {
    // the last line of a traceback names the missing package
    const lastLine = error.message.split("\n").at(-1);
    process.stderr.write(`${error.message}\nbench: not beside ${library}: ${lastLine}\n`);
    return undefined;
  }
}
