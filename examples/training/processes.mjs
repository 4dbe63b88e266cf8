/** Distributes runs over processes with one thread each, so that no run waits for another. */
import { fork } from "node:child_process";
import { fileURLToPath } from "node:url";

const WORKER = fileURLToPath(new URL("worker.mjs", import.meta.url));

/**
 * Computes all `jobs` in `count` processes. Each process is opened with `setting` and takes the next job when it is
 * free. Calls `onSteps` with the number of finished steps, and `onRun` with a job and its run. Throws if a process
 * fails.
 */
export async function computeAll(jobs, count, setting, { onSteps, onRun }) {
  const waiting = [...jobs];
  const children = Array.from({ length: Math.min(count, jobs.length) }, () =>
    fork(WORKER, [JSON.stringify(setting)], { serialization: "advanced" }),
  );
  const ends = children.map((child) => {
    let job;
    const next = () => {
      job = waiting.shift();
      if (job) child.send(job);
      else child.disconnect();
    };
    child.on("message", ({ steps, run }) => {
      if (steps) return onSteps(steps);
      onRun(job, run);
      next();
    });
    next();
    return endOf(child);
  });
  try {
    await Promise.all(ends);
  } finally {
    for (const child of children) child.kill();
  }
}

function endOf(child) {
  return new Promise((resolve, reject) => {
    child.on("error", reject);
    child.on("exit", (code, signal) => {
      if (code === 0) resolve();
      else reject(new Error(`a process that trained has ended with ${signal ?? `code ${code}`}`));
    });
  });
}
