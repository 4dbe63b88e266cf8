/** Child processes of a command. Each runs in its own process group, so that signals also reach its children. */
import { type ChildProcess, spawn } from "node:child_process";

let listener: (isRunning: boolean, group: number) => void = () => {};

/**
 * Sets the listener of process groups: it is called with `true` when a group starts, and with `false` when its first process
 * ends.
 */
export function watchGroups(onChange: typeof listener): void {
  listener = onChange;
}

/** The end of a process: its exit status, or the signal that ended it. */
export interface Ended {
  readonly status: number | null;
  readonly signal: NodeJS.Signals | null;
}

/** A running child process. */
export interface Child {
  /** The standard streams of the process that are pipes. */
  readonly streams: Pick<ChildProcess, "stdin" | "stdout" | "stderr">;
  /** Rejects if the program cannot be started. */
  readonly ended: Promise<Ended>;
  /** Sends a signal to all processes of the group. */
  kill(signal: NodeJS.Signals): void;
}

/** Options of `startChild`. */
export interface ChildOptions {
  /**
   * Standard input, output and error of the program: "ignore", a pipe, or a file descriptor of this process. Default: no input,
   * and both outputs to standard error.
   */
  readonly stdio?: readonly ["ignore" | "pipe", "pipe" | 1 | 2, "pipe" | 2];
  readonly environment?: Readonly<Record<string, string>>;
  /** Whether `program` is a command line, which a shell interprets. Default false. */
  readonly shell?: boolean;
}

/** Starts a program. */
export function startChild(
  program: string,
  args: readonly string[],
  { stdio = ["ignore", 2, 2], environment = {}, shell = false }: ChildOptions = {},
): Child {
  const env = { ...process.env, ...environment };
  const child = spawn(program, args, { stdio: [...stdio], detached: true, env, shell });
  const { pid } = child;
  if (pid !== undefined) listener(true, pid);
  const ended = new Promise<Ended>((resolve, reject) => {
    child.on("error", reject);
    child.on("exit", (status, signal) => {
      if (pid !== undefined) listener(false, pid);
      resolve({ status, signal });
    });
  });
  return { streams: child, ended, kill: (signal) => killGroup(pid, signal) };
}

function killGroup(group: number | undefined, signal: NodeJS.Signals): void {
  try {
    if (group !== undefined) process.kill(-group, signal);
  } catch {
    // the group has already ended
  }
}

/** Runs a program and returns its exit status. Its output goes to standard error. */
export async function runChild(program: string, args: readonly string[]): Promise<number | null> {
  return (await startChild(program, args).ended).status;
}
