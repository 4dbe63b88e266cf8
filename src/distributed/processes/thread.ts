/** The thread that talks to other processes, so that they hear from this one while it computes or sleeps. */
import { parentPort, workerData } from "node:worker_threads";
import { Hub, messageOf } from "./hub.js";
import { type Close, type Closed, failed, type Message, type ThreadData, type Told } from "./messages.js";
import { Spoke } from "./spoke.js";

const { place, port, signal } = workerData as ThreadData;
const count = new Int32Array(signal);

function deliver(message: Message | Told | Closed): void {
  port.postMessage(message, message.kind === "data" ? [message.bytes.buffer] : []);
  Atomics.add(count, 0, 1);
  Atomics.notify(count, 0);
}

const end = place.rank === 0 ? new Hub(place, deliver) : new Spoke(place, deliver);

/** Ends the connections, and with them the thread. ZeroMQ's sockets do not survive one that is ended before. */
async function finish(inOrder: boolean): Promise<void> {
  await (inOrder ? end.leave() : end.close());
  deliver({ kind: "closed" });
  port.close();
}

port.on("message", (message: Message | Close) => {
  if (message.kind === "left") void finish(true);
  else if (message.kind === "close") void finish(false);
  else void pass(message);
});

async function pass(message: Message): Promise<void> {
  end.pass(message);
  if (message.kind !== "failed") return;
  await end.flushed();
  deliver({ kind: "told" });
}

/** A process that `lockstep launch` started does not outlive it. */
if (process.env.LOCKSTEP_LAUNCHED === "1") {
  const { ppid } = process;
  const watch = (): boolean => process.ppid === ppid || process.kill(process.pid, "SIGKILL");
  setInterval(watch, 500).unref();
}

process.on("uncaughtException", (error) => deliver(failed("lost", place.rank, messageOf(error))));

const failure = await end.open();
parentPort?.postMessage(failure);
if (failure) await finish(false);
