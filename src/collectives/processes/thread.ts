/** The messaging thread. It talks to other processes, so that they get answers while the main thread computes or sleeps. */
import { parentPort, workerData } from "node:worker_threads";
import { messageOf } from "../../errors.js";
import { Hub } from "./hub.js";
import { Ledger } from "./ledger.js";
import {
  type Close,
  type Closed,
  type Failed,
  failed,
  type Made,
  type Message,
  type Note,
  type ThreadData,
  type Told,
} from "./messages.js";
import { Spoke } from "./spoke.js";

const { place, port, signal } = workerData as ThreadData;
const count = new Int32Array(signal);

function tell(message: Message | Told | Closed): void {
  port.postMessage(message, message.kind === "data" ? [message.bytes.buffer] : []);
  if (message.kind === "failed") Atomics.store(count, 1, 1);
  wake();
}

function wake(): void {
  Atomics.add(count, 0, 1);
  Atomics.notify(count, 0);
}

function failByLedger(failure: Failed): void {
  tell(failure);
  void pass(failure);
}

const ledger = new Ledger(place.rank, place.timeoutMs, failByLedger, () => {
  Atomics.add(count, 2, 1);
  wake();
});

function deliver(message: Message): void {
  if (message.kind === "notes") for (const note of message.notes) ledger.heard(message.from, note);
  else tell(message);
  if (message.kind === "left") ledger.left(message.rank);
}

const end = place.rank === 0 ? new Hub(place, deliver) : new Spoke(place, deliver);

/** The notes that are not sent yet, by receiving rank. */
const notes = new Map<number, Note[]>();

/** The delay in milliseconds after which notes are sent, so that several go in one message. */
const TOGETHER_MS = 5;
let flushing: NodeJS.Timeout | undefined;

function note(made: Made): void {
  ledger.made(made, performance.now());
  const { of, call, flows } = made;
  for (const [member, flow] of flows.entries()) {
    if (!flow) continue;
    const to = of.ranks[member] as number;
    const waiting = notes.get(to) ?? [];
    waiting.push({ group: of.id, call, ...flow });
    notes.set(to, waiting);
  }
  flushing ??= setTimeout(flush, TOGETHER_MS);
}

function flush(): void {
  clearTimeout(flushing);
  flushing = undefined;
  for (const [to, each] of notes) end.pass({ kind: "notes", from: place.rank, to, notes: each });
  notes.clear();
}

setInterval(() => ledger.look(performance.now()), Math.min(1000, place.timeoutMs / 4)).unref();

/** Closes the connections and ends the thread. A ZeroMQ socket must be closed before its thread ends. */
async function finish(inOrder: boolean): Promise<void> {
  flush();
  await (inOrder ? end.leave() : end.close());
  tell({ kind: "closed" });
  port.close();
}

port.on("message", (message: Message | Made | Close) => {
  if (message.kind === "made") note(message);
  else if (message.kind === "left") void finish(true);
  else if (message.kind === "close") void finish(false);
  else void pass(message);
});

async function pass(message: Message): Promise<void> {
  end.pass(message);
  if (message.kind !== "failed") return;
  await end.flushed();
  tell({ kind: "told" });
}

/** Ends this process when its parent ends, if `lockstep launch` started it. */
if (process.env.LOCKSTEP_LAUNCHED === "1") {
  const { ppid } = process;
  const watch = (): boolean => process.ppid === ppid || process.kill(process.pid, "SIGKILL");
  setInterval(watch, 500).unref();
}

process.on("uncaughtException", (error) => tell(failed("lost", place.rank, messageOf(error))));

const failure = await end.open();
parentPort?.postMessage(failure);
if (failure) await finish(false);
