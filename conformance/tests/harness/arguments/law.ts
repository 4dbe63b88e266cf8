/** The law of arguments: every invalid argument is refused with a typed error, and changes nothing. */
import type ts from "typescript";
import { LockstepError } from "../../../../src/errors.js";
import { QuantizedTensor } from "../../../../src/tensor/quantized.js";
import { Scope } from "../../../../src/tensor/scope.js";
import { Tensor, VIEW_ALIGNMENT } from "../../../../src/tensor/tensor.js";
import { MismatchError } from "../../../values/difference.js";
import {
  type Candidate,
  candidatesFor,
  distances,
  isPlain,
  OF_NO_TYPE,
  overlappingTensors,
} from "./candidates.js";
import type { Callable, Declarations } from "./declared.js";
import { domainOf, type Row } from "./row.js";
import { acceptedTypes } from "./types.js";
import { type Backends, World } from "./world.js";

/** A callable of the package; `self` is the object of a method. */
export type Target = (self: object | undefined, args: readonly unknown[]) => unknown;

/** One way to make a call invalid. */
export interface Trial {
  readonly callable: Callable;
  readonly row: Row;
  readonly call: number;
  readonly label: string;
  /** The paths of the arguments that are replaced. */
  readonly paths: readonly string[];
  readonly mustRefuse: boolean;
  /** Replaces a valid argument by the invalid value. */
  readonly makeInvalid: (world: World, args: unknown[]) => void;
  readonly disposedSelf?: boolean;
}

/** A position in the arguments of a valid call: a parameter, or an option of one. */
interface Position {
  readonly path: string;
  readonly keys: readonly (string | number)[];
  readonly type: ts.Type;
  readonly valid: unknown;
}

/** All trials of a callable. Throws if its row omits a parameter, an option, or the domain of a number. */
export function enumerateTrials(
  { checker }: Declarations,
  callable: Callable,
  row: Row,
  backends: Backends,
): readonly Trial[] {
  const paths = new Set<string>();
  const declaredPaths = new Set<string>();
  const trials = row.calls.flatMap((args, call) =>
    inWorld(backends, (world) => {
      const self = row.self?.(world);
      const valid = args(world);
      const positions = findPositions(checker, callable, valid, declaredPaths);
      for (const { path } of positions) paths.add(path);
      const tensorPositions = positions.filter(
        ({ valid: x }) => x instanceof Tensor || x instanceof QuantizedTensor,
      );
      const otherBackends = (self && !row.isUnbound ? 1 : 0) + countBackends(valid, world);
      return [
        ...positions.flatMap((position) =>
          replacementTrials(checker, position, row, tensorPositions.length + otherBackends),
        ),
        ...overlapTrials(tensorPositions, row),
        ...(row.self && !row.survivesDispose && call === 0 ? [DISPOSED_OBJECT_TRIAL] : []),
      ].map((each) => ({ ...each, callable, row, call }));
    }),
  );
  const missingPaths = [...declaredPaths].filter((path) => !paths.has(path) && !row.exemptions?.[path]);
  if (missingPaths.length > 0)
    throw new Error(
      `${callable.name}: its row gives no value for ${missingPaths.join(", ")}; add them to a valid call`,
    );
  return trials;
}

type TrialBody = Pick<Trial, "label" | "paths" | "mustRefuse" | "makeInvalid" | "disposedSelf">;

const DISPOSED_OBJECT_TRIAL: TrialBody = {
  label: "called on what was disposed of",
  paths: [],
  mustRefuse: true,
  makeInvalid() {},
  disposedSelf: true,
};

function countBackends(args: readonly unknown[], world: World): number {
  return args.some((each) => each === world.backend) ? 1 : 0;
}

function findPositions(
  checker: ts.TypeChecker,
  { parameters }: Callable,
  args: readonly unknown[],
  declaredPaths: Set<string>,
): readonly Position[] {
  const positions: Position[] = [];
  const visit = (position: Position): void => {
    const accepted = acceptedTypes(checker, position.type);
    if (position.valid !== undefined) positions.push(position);
    if (accepted.hasMethods || accepted.acceptsAll) return;
    for (const [key, { type }] of accepted.fields) {
      const path = `${position.path}.${key}`;
      declaredPaths.add(path);
      const valid = isPlain(position.valid) ? Reflect.get(position.valid, key) : undefined;
      if (valid !== undefined) visit({ path, keys: [...position.keys, key], type, valid });
    }
  };
  parameters.forEach(({ name, type }, i) => {
    declaredPaths.add(name);
    visit({ path: name, keys: [i], type, valid: args[i] });
  });
  return positions;
}

function replacementTrials(
  checker: ts.TypeChecker,
  position: Position,
  row: Row,
  tensorCount: number,
): readonly TrialBody[] {
  const { path, keys, type, valid } = position;
  if (row.exemptions?.[path]) return [];
  const accepted = acceptedTypes(checker, type);
  const numbers = domainOf(row, path);
  if (accepted.kinds.has("number") && !numbers)
    throw new Error(`${path}: the row does not say which numbers it takes`);
  const anyType = row.anyType?.includes(path) ?? false;
  const candidates = candidatesFor({
    accepted: accepted,
    numbers,
    anyType,
    hasOtherTensor: tensorCount > 1,
    valid,
  });
  return candidates.map(({ label, value, mustRefuse }: Candidate) => ({
    label: `${path} is ${label}`,
    paths: [path],
    mustRefuse,
    makeInvalid: (world, args) => replaceAt(args, keys, (now) => value(world, now)),
  }));
}

/**
 * Trials in which an output shares memory with another argument, at every distance, except where the row says that the
 * call works in place.
 */
function overlapTrials(positions: readonly Position[], row: Row): readonly TrialBody[] {
  const isWritten = (path: string): boolean =>
    row.writes?.some((output) => path === output || path.startsWith(`${output}.`)) ?? false;
  return positions.flatMap((xPosition, i) =>
    positions.slice(i + 1).flatMap((yPosition): readonly TrialBody[] => {
      const [x, y] = [xPosition.valid, yPosition.valid];
      if (!(x instanceof Tensor && y instanceof Tensor)) return [];
      const paths = [xPosition.path, yPosition.path];
      const worksInPlace = paths.some((path) => row.inPlace?.includes(path));
      const haveEqualLayout = x.dtype === y.dtype && x.byteLength === y.byteLength;
      return distances(x, y).flatMap((distance): readonly TrialBody[] => {
        const mustRefuse = paths.some(isWritten) && !(worksInPlace && haveEqualLayout && distance === 0);
        // a call that may be accepted is executed, so its tensors must be aligned
        if (!mustRefuse && distance % VIEW_ALIGNMENT !== 0) return [];
        const makeInvalid: Trial["makeInvalid"] = (_world, args) => {
          const [a, b] = overlappingTensors(x, y, distance);
          replaceAt(args, xPosition.keys, () => a);
          replaceAt(args, yPosition.keys, () => b);
        };
        return [
          { label: `${paths.join(" and ")} are ${distance} bytes apart`, paths, mustRefuse, makeInvalid },
        ];
      });
    }),
  );
}

/** Whether the positions of two trials are disjoint, so that one call can test both. */
export function haveDisjointPaths(a: Trial, b: Trial): boolean {
  const isWithin = (inner: string, outer: string): boolean =>
    inner === outer || inner.startsWith(`${outer}.`);
  return a.paths.every((x) => b.paths.every((y) => !isWithin(x, y) && !isWithin(y, x)));
}

/** Replaces the value at `keys`; the objects along the path are copied. */
function replaceAt(
  args: unknown[],
  keys: readonly (string | number)[],
  value: (previous: unknown) => unknown,
): void {
  const [index, ...innerKeys] = keys as [number, ...string[]];
  const replaceInner = (container: unknown, path: readonly string[]): unknown => {
    const [key, ...inner] = path;
    if (key === undefined) return value(container);
    return isPlain(container)
      ? { ...container, [key]: replaceInner(Reflect.get(container, key), inner) }
      : container;
  };
  args[index] = replaceInner(args[index], innerKeys);
}

export function inWorld<R>(backends: Backends, body: (world: World) => R): R {
  using _ = new Scope();
  const world = new World(backends);
  try {
    return body(world);
  } finally {
    world.dispose();
  }
}

/** Data that the errors of refused calls contain. */
export interface Refusals {
  /** The classes of the errors. */
  readonly errors: Set<string>;
  /** The functions that refused: the names with which the messages begin. */
  readonly refusingFunctions: Set<string>;
  /** Messages that do not name the invalid argument, by the argument's path. Only for values that no argument accepts. */
  readonly unnamedArguments: Map<string, string>;
}

/**
 * Makes an invalid call, by one trial or several. Returns a description of the violation, or undefined. `refusals` collects the
 * errors that refused the call.
 */
export async function makeInvalidCall(
  target: Target,
  trials: readonly Trial[],
  backends: Backends,
  refusals?: Refusals,
): Promise<string | undefined> {
  const [{ callable, row, call }] = trials as [Trial];
  const liveBefore = liveOn(backends);
  const outer = new Scope();
  const world = new World(backends);
  const description = `${callable.name}, where ${trials.map(({ label }) => label).join(" and ")}`;
  let fault: string | undefined;
  try {
    const self = row.self?.(world);
    const args = [...(row.calls[call] as Row["calls"][0])(world)];
    for (const { makeInvalid } of trials) makeInvalid(world, args);
    if (trials.some(({ disposedSelf }) => disposedSelf)) dispose(self);
    const outcome = await runTrial(target, self, args, world);
    const mustRefuse = trials.some((each) => each.mustRefuse);
    if (outcome.error) refusals?.errors.add(outcome.error.constructor.name);
    if (outcome.error) refusals?.refusingFunctions.add(outcome.error.message.split(":", 1)[0] as string);
    if (outcome.error) recordUnnamed(trials, outcome.error.message, refusals);
    if (outcome.fault !== undefined) fault = `${description}: ${outcome.fault}`;
    else if (mustRefuse && !outcome.isRefused) fault = `${description}: it was taken`;
  } catch (error) {
    fault = `${description}: ${error}`;
  }
  try {
    world.dispose();
    outer.dispose();
  } catch (error) {
    fault ??= `${description}: ${error}`;
  }
  const leakedBytes = liveOn(backends) - liveBefore;
  return (
    fault ?? (leakedBytes === 0 ? undefined : `${description}: ${leakedBytes} bytes were not given back`)
  );
}

function recordUnnamed(trials: readonly Trial[], message: string, refusals: Refusals | undefined): void {
  const [{ label, paths }] = trials as [Trial];
  const [path = ""] = paths;
  if (label !== `${path} is ${OF_NO_TYPE}`) return;
  const name = path.split(".").at(-1);
  if (!new RegExp(`\\b${name}\\b`).test(message)) refusals?.unnamedArguments.set(path, message);
}

function liveOn({ backend, otherBackend }: Backends): number {
  return backend.memoryUse().live + otherBackend.memoryUse().live;
}

interface Outcome {
  readonly isRefused: boolean;
  readonly fault?: string;
  /** The typed error that refused the call. */
  readonly error?: LockstepError;
}

async function runTrial(
  target: Target,
  self: object | undefined,
  args: readonly unknown[],
  world: World,
): Promise<Outcome> {
  const scope = new Scope();
  world.scope = scope;
  const stateBefore = world.state();
  try {
    const result: unknown = await target(self, args);
    disposeAll(result);
    return { isRefused: false };
  } catch (error) {
    // a MismatchError is the result of a comparison, not a refusal
    if (error instanceof MismatchError) return { isRefused: false };
    if (!(error instanceof LockstepError)) return { isRefused: true, fault: `${error} is no typed error` };
    const changedState = differences(stateBefore, world.state());
    const refusal = { isRefused: true, error };
    return changedState
      ? { ...refusal, fault: `refused (${error.message}), and yet changed: ${changedState}` }
      : refusal;
  } finally {
    scope.dispose();
  }
}

function differences(
  before: Readonly<Record<string, unknown>>,
  after: Readonly<Record<string, unknown>>,
): string {
  const keys = new Set([...Object.keys(before), ...Object.keys(after)]);
  return [...keys].filter((key) => before[key] !== after[key]).join(", ");
}

function dispose(result: unknown): void {
  const method: unknown =
    typeof result === "object" && result !== null ? Reflect.get(result, "dispose") : undefined;
  if (typeof method === "function") Reflect.apply(method, result, []);
  else if (result instanceof Object && Symbol.dispose in result) (result as Disposable)[Symbol.dispose]();
}

/** Disposes of everything that an accepted call returned. */
function disposeAll(result: unknown): void {
  dispose(result);
  if (isPlain(result)) for (const member of Object.values(result)) dispose(member);
}

/** Makes a valid call. It must be accepted, and may write only the tensors that its row lists. */
export async function makeValidCall(
  target: Target,
  row: Row,
  call: number,
  backends: Backends,
): Promise<string | undefined> {
  const live = liveOn(backends);
  const fault = await validCallFault(target, row, call, backends);
  const leakedBytes = liveOn(backends) - live;
  return fault ?? (leakedBytes === 0 ? undefined : `the valid call keeps ${leakedBytes} bytes`);
}

async function validCallFault(
  target: Target,
  row: Row,
  call: number,
  backends: Backends,
): Promise<string | undefined> {
  const outer = new Scope();
  const world = new World(backends);
  try {
    const self = row.self?.(world);
    const args = (row.calls[call] as Row["calls"][0])(world);
    const outputs = outputTensors(row, args, self);
    const stateBefore = world.state(outputs);
    const result: unknown = await target(self, args);
    const stateAfter = world.state(outputs);
    disposeAll(result);
    const names = Object.keys(stateBefore).filter((key) => /^(f32|bf16|f16|i32|u|e|member|canary)/.test(key));
    const changedNames = names.filter((key) => key in stateAfter && stateBefore[key] !== stateAfter[key]);
    return changedNames.length > 0 ? `the valid call changes ${changedNames.join(", ")}` : undefined;
  } catch (error) {
    return `the valid call throws ${error instanceof Error ? error.stack : error}`;
  } finally {
    world.dispose();
    outer.dispose();
  }
}

function outputTensors({ writes = [] }: Row, args: readonly unknown[], self: unknown): ReadonlySet<Tensor> {
  const tensors = new Set<Tensor>();
  const add = (x: unknown): void => {
    if (x instanceof Tensor) tensors.add(x);
    else if (x instanceof QuantizedTensor) for (const member of x.members) tensors.add(member);
  };
  for (const path of writes) {
    const [root, ...keys] = path.split(".");
    if (root === "self") add(self);
    // a value does not identify its argument, so all arguments are searched
    for (const arg of args) {
      let value: unknown = arg;
      for (const key of keys) value = isPlain(value) ? Reflect.get(value, key) : undefined;
      add(value);
    }
  }
  return tensors;
}
