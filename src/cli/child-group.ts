/** Child processes of a command, each in a process group that can be ended as one. */
import { spawn } from "node:child_process";

let listener: (running: boolean, group: number) => void = () => {};

/** Calls `told` when a group begins, with `true`, and when its first process has ended. */
export function watchGroups(told: typeof listener): void {
  listener = told;
}

/** Runs a program, its output going where errors go, and gives its exit status. */
export async function runChild(program: string, args: readonly string[]): Promise<number | null> {
  return new Promise((resolve, reject) => {
    const child = spawn(program, args, { stdio: ["ignore", 2, 2], detached: true });
    const { pid } = child;
    if (pid !== undefined) listener(true, pid);
    child.on("error", reject);
    child.on("exit", (status) => {
      if (pid !== undefined) listener(false, pid);
      resolve(status);
    });
  });
}
