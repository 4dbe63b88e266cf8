/**
 * Child processes of a command. Each runs in a process group of its own, so that a signal reaches it together with its own
 * children.
 */
import { spawn } from "node:child_process";

let listener: (running: boolean, group: number) => void = () => {};

/**
 * Sets the listener of process groups: it is called with `true` when a group starts, and with `false` when its first process
 * ends.
 */
export function watchGroups(told: typeof listener): void {
  listener = told;
}

/** The exit status of a process, or the signal that ended it. */
export interface Ended {
  readonly status: number | null;
  readonly signal: NodeJS.Signals | null;
}

/** A running child process. */
export interface Child {
  readonly ended: Promise<Ended>;
  /** Sends a signal to all processes of the group. */
  kill(signal: NodeJS.Signals): void;
}

/** Options of `startChild`. */
export interface ChildOptions {
  /** The file descriptor that receives the program's standard output. Default 2, standard error. */
  readonly stdout?: 1 | 2;
  readonly environment?: Readonly<Record<string, string>>;
}

/** Starts a program. Its standard error goes to the standard error of this process. */
export function startChild(
  program: string,
  args: readonly string[],
  { stdout = 2, environment = {} }: ChildOptions = {},
): Child {
  const env = { ...process.env, ...environment };
  const child = spawn(program, args, { stdio: ["ignore", stdout, 2], detached: true, env });
  const { pid } = child;
  if (pid !== undefined) listener(true, pid);
  const ended = new Promise<Ended>((resolve, reject) => {
    child.on("error", reject);
    child.on("exit", (status, signal) => {
      if (pid !== undefined) listener(false, pid);
      resolve({ status, signal });
    });
  });
  return { ended, kill: (signal) => killGroup(pid, signal) };
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
