/**
 * The worker of the program. It runs the command line, and reports temporary files and child processes to the main thread,
 * which removes them if the program ends early.
 */
import { workerData } from "node:worker_threads";
import { watchTemporaries } from "../io/replace/temporaries.js";
import { watchGroups } from "./child-group.js";
import type { Leftover, ProgramData } from "./launch.js";
import { runCli } from "./main.js";
import { readInput, readInputBlocking, STDERR, STDOUT, writeBytes, writeText } from "./standard-streams.js";

const { args, port, columns } = workerData as ProgramData;
const report = (leftover: Leftover): void => port.postMessage(leftover);

watchTemporaries((unfinished, path) => report({ unfinished, path }));
watchGroups((running, group) => report({ running, group }));

process.exit(
  await runCli(args, {
    stdout: { write: (text) => writeText(STDOUT, text) },
    binary: {
      read: readInput,
      readBlocking: readInputBlocking,
      write: (bytes) => writeBytes(STDOUT, bytes),
    },
    stderr: { write: (text) => writeText(STDERR, text), isTTY: columns !== undefined, columns },
  }),
);
