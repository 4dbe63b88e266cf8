/** Names a call that does not return. The test runner cannot do so, because the call blocks the runner's thread. */
import { Worker } from "node:worker_threads";

/** The number of seconds after which a call is named. */
const TIMEOUT_SECONDS = 30;
/** The longest text about a call, in UTF-16 units. */
const MAX_DESCRIPTION = 4096;

const BODY = `
  const { workerData } = require("node:worker_threads");
  const { writeSync } = require("node:fs");
  const count = new Int32Array(workerData.count), text = new Uint16Array(workerData.text);
  let seen = -1;
  setInterval(() => {
    if (count[0] === seen) writeSync(2, "no return for ${TIMEOUT_SECONDS} s from " + String.fromCharCode(...text.subarray(0, count[1])) + "\\n");
    seen = count[0];
  }, ${TIMEOUT_SECONDS * 1000});`;

/** Writes to standard error which call does not return for half a minute. */
export class CallWatch {
  private readonly count = new Int32Array(new SharedArrayBuffer(8));
  private readonly description = new Uint16Array(new SharedArrayBuffer(2 * MAX_DESCRIPTION));
  private readonly worker = new Worker(BODY, {
    eval: true,
    workerData: { count: this.count.buffer, text: this.description.buffer },
  });

  /** Notes that a call begins. `call` describes it. */
  begin(call: string): void {
    const { length } = call.slice(0, MAX_DESCRIPTION);
    for (let i = 0; i < length; i++) this.description[i] = call.charCodeAt(i);
    this.count[1] = length;
    Atomics.add(this.count, 0, 1);
  }

  async end(): Promise<void> {
    await this.worker.terminate();
  }
}
