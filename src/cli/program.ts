/** The program's worker: runs the command line, and tells the main thread what has to go if it is ended early. */
import { workerData } from "node:worker_threads";
import { watchTemporaries } from "../io/temporaries.js";
import { watchGroups } from "./child-group.js";
import type { Leftover, ProgramData } from "./launch.js";
import { runCli } from "./main.js";
import { STDERR, STDOUT, writeText } from "./standard-streams.js";

const { args, port, columns } = workerData as ProgramData;
const tell = (leftover: Leftover): void => port.postMessage(leftover);

watchTemporaries((unfinished, path) => tell({ unfinished, path }));
watchGroups((running, group) => tell({ running, group }));

process.exit(
  await runCli(args, {
    stdout: { write: (text) => writeText(STDOUT, text) },
    stderr: { write: (text) => writeText(STDERR, text), isTTY: columns !== undefined, columns },
  }),
);
