/** The messaging thread. It answers other processes while the main thread computes or sleeps. */
import { parentPort, workerData } from "node:worker_threads";
import { messageOf } from "../../errors.js";
import { Hub } from "./hub.js";
import { Ledger } from "./ledger.js";
import {
  type Close,
  type Closed,
  type EnqueuedCall,
  type Failed,
  failed,
  type Message,
  type Note,
  type Reported,
  type ThreadData,
} from "./messages.js";
import { Spoke } from "./spoke.js";

const { rendezvous, port, signal } = workerData as ThreadData;
const count = new Int32Array(signal);

function toMain(message: Message | Reported | Closed): void {
  port.postMessage(message, message.kind === "data" ? [message.bytes.buffer] : []);
  if (message.kind === "failed") Atomics.store(count, 1, 1);
  wake();
}

function wake(): void {
  Atomics.add(count, 0, 1);
  Atomics.notify(count, 0);
}

function failByLedger(failure: Failed): void {
  toMain(failure);
  void pass(failure);
}

const ledger = new Ledger(rendezvous.rank, rendezvous.timeoutMs, failByLedger, () => {
  Atomics.add(count, 2, 1);
  wake();
});

function deliver(message: Message): void {
  if (message.kind === "notes") for (const note of message.notes) ledger.recordNote(message.from, note);
  else toMain(message);
  if (message.kind === "left") ledger.recordDeparture(message.rank);
}

const end = rendezvous.rank === 0 ? new Hub(rendezvous, deliver) : new Spoke(rendezvous, deliver);

/** The notes that are not sent yet, by receiving rank. */
const notes = new Map<number, Note[]>();

/** The delay before notes are sent, in milliseconds. One message carries all notes of this time. */
const TOGETHER_MS = 5;
let flushing: NodeJS.Timeout | undefined;

function note(enqueued: EnqueuedCall): void {
  ledger.recordCall(enqueued, performance.now());
  const { membership, call, flows } = enqueued;
  for (const [member, flow] of flows.entries()) {
    if (!flow) continue;
    const to = membership.ranks[member] as number;
    const waiting = notes.get(to) ?? [];
    waiting.push({ group: membership.id, call, ...flow });
    notes.set(to, waiting);
  }
  flushing ??= setTimeout(flush, TOGETHER_MS);
}

function flush(): void {
  clearTimeout(flushing);
  flushing = undefined;
  for (const [to, rankNotes] of notes)
    end.pass({ kind: "notes", from: rendezvous.rank, to, notes: rankNotes });
  notes.clear();
}

setInterval(() => ledger.checkWaiting(performance.now()), Math.min(1000, rendezvous.timeoutMs / 4)).unref();

/** Closes the connections and ends the thread. A ZeroMQ socket must be closed before its thread ends. */
async function finish(inOrder: boolean): Promise<void> {
  flush();
  await (inOrder ? end.leave() : end.close());
  toMain({ kind: "closed" });
  port.close();
}

port.on("message", (message: Message | EnqueuedCall | Close) => {
  if (message.kind === "enqueued") note(message);
  else if (message.kind === "left") void finish(true);
  else if (message.kind === "close") void finish(false);
  else void pass(message);
});

async function pass(message: Message): Promise<void> {
  end.pass(message);
  if (message.kind !== "failed") return;
  await end.flushed();
  toMain({ kind: "reported" });
}

/** Ends this process when its parent ends, if `lockstep launch` started it. */
if (process.env.LOCKSTEP_LAUNCHED === "1") {
  const { ppid } = process;
  const watch = (): boolean => process.ppid === ppid || process.kill(process.pid, "SIGKILL");
  setInterval(watch, 500).unref();
}

process.on("uncaughtException", (error) => toMain(failed("lost", rendezvous.rank, messageOf(error))));

const failure = await end.open();
parentPort?.postMessage(failure);
if (failure) await finish(false);
