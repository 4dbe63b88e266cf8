/** Child processes of a command, each in a process group that can be ended as one. */
import { spawn } from "node:child_process";

let listener: (running: boolean, group: number) => void = () => {};

/** Calls `told` when a group begins, with `true`, and when its first process has ended. */
export function watchGroups(told: typeof listener): void {
  listener = told;
}

/** How a program ended. */
export interface Ended {
  readonly status: number | null;
  readonly signal: NodeJS.Signals | null;
}

/** A program that runs. */
export interface Child {
  readonly ended: Promise<Ended>;
  /** Sends a signal to all of its group. */
  kill(signal: NodeJS.Signals): void;
}

/** Where a program's output goes, and what its environment has besides this one's. */
export interface ChildOptions {
  /** A file descriptor. Default: where errors go. */
  readonly stdout?: 1 | 2;
  readonly environment?: Readonly<Record<string, string>>;
}

/** Starts a program; its errors go where errors go. */
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
    // it has ended by itself
  }
}

/** Runs a program, its output going where errors go, and gives its exit status. */
export async function runChild(program: string, args: readonly string[]): Promise<number | null> {
  return (await startChild(program, args).ended).status;
}
