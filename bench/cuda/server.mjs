// Another library in a process of its own, which runs its cases on the same GPU when it is told to.
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

/**
 * Starts a Python program of this folder. The program prints its version and the names of its cases as one line of JSON. It then
 * answers each line "NAME<TAB>CALLS" with the seconds per call. If it does not start, prints the reason and returns undefined.
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
    throw new Error(reason.trim().split("\n").at(-1) || "python3 could not be started");
  };
  child.on("error", () => {});
  try {
    const { version, cases } = await next();
    const seconds = (name, calls) => {
      child.stdin.write(`${name}\t${calls}\n`);
      return next();
    };
    return { version, cases, seconds, close: () => child.stdin.end() };
  } catch (error) {
    process.stderr.write(`bench: not beside ${library}: ${error.message}\n`);
    return undefined;
  }
}
