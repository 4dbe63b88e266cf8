/** Names a call that does not return. A test runner cannot: the call blocks its thread. */
import { Worker } from "node:worker_threads";

/** The number of seconds after which a call is named. */
const PATIENCE = 30;
/** The longest text about a call, in UTF-16 units. */
const LENGTH = 4096;

const BODY = `
  const { workerData } = require("node:worker_threads");
  const { writeSync } = require("node:fs");
  const count = new Int32Array(workerData.count), text = new Uint16Array(workerData.text);
  let seen = -1;
  setInterval(() => {
    if (count[0] === seen) writeSync(2, "no return for ${PATIENCE} s from " + String.fromCharCode(...text.subarray(0, count[1])) + "\\n");
    seen = count[0];
  }, ${PATIENCE * 1000});`;

/** Writes to standard error which call does not return for half a minute. */
export class CallWatch {
  private readonly count = new Int32Array(new SharedArrayBuffer(8));
  private readonly text = new Uint16Array(new SharedArrayBuffer(2 * LENGTH));
  private readonly worker = new Worker(BODY, {
    eval: true,
    workerData: { count: this.count.buffer, text: this.text.buffer },
  });

  /** Notes that the call that `text` describes begins. */
  begin(text: string): void {
    const { length } = text.slice(0, LENGTH);
    for (let i = 0; i < length; i++) this.text[i] = text.charCodeAt(i);
    this.count[1] = length;
    Atomics.add(this.count, 0, 1);
  }

  async end(): Promise<void> {
    await this.worker.terminate();
  }
}
