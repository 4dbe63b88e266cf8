/** The outcome of a call as a string: its result with all elements, its writes, or the typed error that refused it. */
import { LockstepError } from "../../../../src/errors.js";
import { Variable } from "../../../../src/tape/variable.js";
import { QuantizedTensor } from "../../../../src/tensor/quantized.js";
import { Scope } from "../../../../src/tensor/scope.js";
import { Tensor } from "../../../../src/tensor/tensor.js";
import { MismatchError } from "../../../values/difference.js";
import { isPlain } from "./candidates.js";
import type { Target } from "./law.js";
import type { Row } from "./row.js";
import { type Backends, World } from "./world.js";

export interface Outcome {
  /** The result and all state, for a call that returned. */
  readonly result?: string;
  /** The typed error of a call that was refused. */
  readonly refusal?: string;
  /** The violation: an error of another class, an unbounded message, an unbounded time, or a damaged fence. */
  readonly fault?: string;
}

/** The longest message of an error, in characters, and the longest time of a call, in ms of processor time. */
const MAX_MESSAGE = 2000;
const MAX_TIME = 1000;

/** Calls `target` with the arguments that `transform` returns for those of a valid call. */
export async function outcomeOf(
  target: Target,
  row: Row,
  call: number,
  backends: Backends,
  transform: (args: readonly unknown[], world: World) => readonly unknown[],
): Promise<Outcome> {
  const outer = new Scope();
  const world = new World(backends);
  let outcome: Outcome;
  try {
    const self = row.self?.(world);
    const args = transform((row.calls[call] as Row["calls"][0])(world), world);
    outcome = await callTarget(target, self, args, world);
  } catch (error) {
    outcome = { fault: `the set-up throws ${error}` };
  }
  try {
    world.dispose();
    outer.dispose();
  } catch (error) {
    return { fault: `${error}` };
  }
  return outcome;
}

async function callTarget(
  target: Target,
  self: object | undefined,
  args: readonly unknown[],
  world: World,
): Promise<Outcome> {
  const start = process.cpuUsage();
  try {
    const scope = new Scope();
    try {
      const result: unknown = await target(self, args);
      const resultText = JSON.stringify(
        [toPlainData(result, 4), changeableState(world)],
        (_, value: unknown) => (typeof value === "bigint" ? `${value}n` : value),
      );
      if (!args.includes(result)) release(result);
      return { result: resultText, ...timeFault(start) };
    } finally {
      scope.dispose();
    }
  } catch (error) {
    if (error instanceof MismatchError) return { result: "a mismatch" };
    if (!(error instanceof LockstepError)) {
      const trace = error instanceof Error ? (error.stack ?? "").split("\n").slice(0, 4).join(" | ") : error;
      return { fault: `no typed error: ${String(trace).slice(0, 600)}` };
    }
    const { message } = error;
    if (message.length > MAX_MESSAGE)
      return { fault: `a message of ${message.length} characters: ${message.slice(0, 200)}...` };
    return { refusal: message, ...timeFault(start) };
  }
}

/** The state that a call may change, without the fields that accumulate over calls. */
function changeableState(world: World): Readonly<Record<string, unknown>> {
  const { "default random": _, region: _region, live: _live, blocks: _blocks, ...state } = world.state();
  return state;
}

function timeFault(start: NodeJS.CpuUsage): Pick<Outcome, "fault"> {
  const { user, system } = process.cpuUsage(start);
  const ms = (user + system) / 1000;
  return ms > MAX_TIME ? { fault: `it took ${Math.round(ms)} ms` } : {};
}

/** A copy of a result as plain data, with the bytes of every tensor. */
function toPlainData(value: unknown, depth: number): unknown {
  if (value instanceof Tensor)
    return value.disposed ? "disposed" : [value.dtype, value.shape, tensorBytes(value)];
  if (value instanceof QuantizedTensor) return value.members.map((each) => toPlainData(each, depth));
  if (value instanceof Variable) return ["variable", toPlainData(value.value, depth)];
  if (ArrayBuffer.isView(value))
    return Buffer.from(value.buffer, value.byteOffset, value.byteLength).toString("base64");
  if (typeof value === "function") return "a function";
  if (typeof value !== "object" || value === null || depth === 0)
    return typeof value === "symbol" ? "" : value;
  const prototype: unknown = Object.getPrototypeOf(value);
  if (Array.isArray(value)) return value.map((each) => toPlainData(each, depth - 1));
  if (prototype !== Object.prototype && prototype !== null) return "an object";
  return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, toPlainData(each, depth - 1)]));
}

function tensorBytes(x: Tensor): string {
  const { buffer, byteOffset, byteLength } = x.dataSync();
  return Buffer.from(buffer, byteOffset, byteLength).toString("base64");
}

/** Disposes of a call's result: an object of the library, or such objects in a plain object or an array. */
function release(result: unknown): void {
  const isList = Array.isArray(result) || isPlain(result);
  for (const member of isList ? Object.values(result) : [result]) {
    const method: unknown =
      typeof member === "object" && member !== null ? Reflect.get(member, "dispose") : undefined;
    if (typeof method === "function") Reflect.apply(method, member, []);
  }
}
