/** The law of arguments: every invalid argument is refused with a typed error, and changes nothing. */
import type ts from "typescript";
import { LockstepError } from "../../../../src/errors.js";
import { QuantizedTensor } from "../../../../src/tensor/quantized.js";
import { Scope } from "../../../../src/tensor/scope.js";
import { Tensor, VIEW_ALIGNMENT } from "../../../../src/tensor/tensor.js";
import { MismatchError } from "../../../values/difference.js";
import { type Candidate, candidatesFor, distances, isPlain, laid, OF_NO_TYPE } from "./candidates.js";
import type { Callable, Declarations } from "./declared.js";
import { domainOf, type Row } from "./row.js";
import { takenBy } from "./types.js";
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
  readonly wrong: boolean;
  /** Replaces a valid argument by the invalid value. */
  readonly spoil: (world: World, args: unknown[]) => void;
  readonly disposedSelf?: boolean;
}

/** A position in the arguments of a valid call: a parameter, or an option of one. */
interface Spot {
  readonly path: string;
  readonly keys: readonly (string | number)[];
  readonly type: ts.Type;
  readonly valid: unknown;
}

/** All trials of a callable. Throws if its row omits a parameter, an option, or the domain of a number. */
export function trialsOf(
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
      const spots = spotsOf(checker, callable, valid, declaredPaths);
      for (const { path } of spots) paths.add(path);
      const bound = spots.filter(({ valid: x }) => x instanceof Tensor || x instanceof QuantizedTensor);
      const others = (self && !row.unbound ? 1 : 0) + backendsIn(valid, world);
      return [
        ...spots.flatMap((spot) => spoilt(checker, spot, row, bound.length + others)),
        ...pairs(bound, row),
        ...(row.self && !row.outlives && call === 0 ? [onDisposed] : []),
      ].map((each) => ({ ...each, callable, row, call }));
    }),
  );
  const missing = [...declaredPaths].filter((path) => !paths.has(path) && !row.free?.[path]);
  if (missing.length > 0)
    throw new Error(
      `${callable.name}: its row gives no value for ${missing.join(", ")}; add them to a valid call`,
    );
  return trials;
}

type Part = Pick<Trial, "label" | "paths" | "wrong" | "spoil" | "disposedSelf">;

const onDisposed: Part = {
  label: "called on what was disposed of",
  paths: [],
  wrong: true,
  spoil() {},
  disposedSelf: true,
};

function backendsIn(args: readonly unknown[], world: World): number {
  return args.some((each) => each === world.backend) ? 1 : 0;
}

function spotsOf(
  checker: ts.TypeChecker,
  { parameters }: Callable,
  args: readonly unknown[],
  declaredPaths: Set<string>,
): readonly Spot[] {
  const spots: Spot[] = [];
  const visit = (spot: Spot): void => {
    const taken = takenBy(checker, spot.type);
    if (spot.valid !== undefined) spots.push(spot);
    if (taken.works || taken.anything) return;
    for (const [key, { type }] of taken.fields) {
      const path = `${spot.path}.${key}`;
      declaredPaths.add(path);
      const valid = isPlain(spot.valid) ? Reflect.get(spot.valid, key) : undefined;
      if (valid !== undefined) visit({ path, keys: [...spot.keys, key], type, valid });
    }
  };
  parameters.forEach(({ name, type }, i) => {
    declaredPaths.add(name);
    visit({ path: name, keys: [i], type, valid: args[i] });
  });
  return spots;
}

function spoilt(checker: ts.TypeChecker, spot: Spot, row: Row, bound: number): readonly Part[] {
  const { path, keys, type, valid } = spot;
  if (row.free?.[path]) return [];
  const taken = takenBy(checker, type);
  const numbers = domainOf(row, path);
  if (taken.kinds.has("number") && !numbers)
    throw new Error(`${path}: the row does not say which numbers it takes`);
  const anyType = row.anyType?.includes(path) ?? false;
  const candidates = candidatesFor({ taken, numbers, anyType, accompanied: bound > 1, valid });
  return candidates.map(({ label, value, wrong }: Candidate) => ({
    label: `${path} is ${label}`,
    paths: [path],
    wrong,
    spoil: (world, args) => put(args, keys, (now) => value(world, now)),
  }));
}

/**
 * Trials in which an output shares memory with another argument, at every distance, except where the row says that the
 * call works in place.
 */
function pairs(bound: readonly Spot[], row: Row): readonly Part[] {
  const isWritten = (path: string): boolean =>
    row.writes?.some((each) => path === each || path.startsWith(`${each}.`)) ?? false;
  return bound.flatMap((first, i) =>
    bound.slice(i + 1).flatMap((second): readonly Part[] => {
      const [x, y] = [first.valid, second.valid];
      if (!(x instanceof Tensor && y instanceof Tensor)) return [];
      const paths = [first.path, second.path];
      const mayBeOne = paths.some((path) => row.inPlace?.includes(path));
      const isAlike = x.dtype === y.dtype && x.byteLength === y.byteLength;
      return distances(x, y).flatMap((distance): readonly Part[] => {
        const wrong = paths.some(isWritten) && !(mayBeOne && isAlike && distance === 0);
        // a call that may be accepted is executed, so its tensors must be aligned
        if (!wrong && distance % VIEW_ALIGNMENT !== 0) return [];
        const spoil: Trial["spoil"] = (_world, args) => {
          const [a, b] = laid(x, y, distance);
          put(args, first.keys, () => a);
          put(args, second.keys, () => b);
        };
        return [{ label: `${paths.join(" and ")} are ${distance} bytes apart`, paths, wrong, spoil }];
      });
    }),
  );
}

/** Whether the positions of two trials are disjoint, so that one call can test both. */
export function areApart(a: Trial, b: Trial): boolean {
  const within = (inner: string, outer: string): boolean => inner === outer || inner.startsWith(`${outer}.`);
  return a.paths.every((x) => b.paths.every((y) => !within(x, y) && !within(y, x)));
}

/** Replaces the value at `keys`; the objects along the path are copied. */
function put(args: unknown[], keys: readonly (string | number)[], value: (now: unknown) => unknown): void {
  const [first, ...rest] = keys as [number, ...string[]];
  const replaced = (at: unknown, path: readonly string[]): unknown => {
    const [key, ...inner] = path;
    if (key === undefined) return value(at);
    return isPlain(at) ? { ...at, [key]: replaced(Reflect.get(at, key), inner) } : at;
  };
  args[first] = replaced(args[first], rest);
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

/** How invalid calls were refused. */
export interface Refusals {
  /** The classes of the errors. */
  readonly errors: Set<string>;
  /** The names with which the messages begin: the functions that refused. */
  readonly users: Set<string>;
  /** Messages that do not name the invalid argument, by the argument's path. Only for values that no argument accepts. */
  readonly unnamed: Map<string, string>;
}

/**
 * Makes an invalid call, by one trial or several. Returns a description of the violation, or undefined. `refusals` collects the
 * errors that refused the call.
 */
export async function tried(
  target: Target,
  trials: readonly Trial[],
  backends: Backends,
  refusals?: Refusals,
): Promise<string | undefined> {
  const [{ callable, row, call }] = trials as [Trial];
  const before = liveOn(backends);
  const outer = new Scope();
  const world = new World(backends);
  const what = `${callable.name}, where ${trials.map(({ label }) => label).join(" and ")}`;
  let fault: string | undefined;
  try {
    const self = row.self?.(world);
    const args = [...(row.calls[call] as Row["calls"][0])(world)];
    for (const { spoil } of trials) spoil(world, args);
    if (trials.some(({ disposedSelf }) => disposedSelf)) dispose(self);
    const outcome = await run(target, self, args, world);
    const wrong = trials.some((each) => each.wrong);
    if (outcome.error) refusals?.errors.add(outcome.error.constructor.name);
    if (outcome.error) refusals?.users.add(outcome.error.message.split(":", 1)[0] as string);
    if (outcome.error) noteUnnamed(trials, outcome.error.message, refusals);
    if (outcome.fault !== undefined) fault = `${what}: ${outcome.fault}`;
    else if (wrong && !outcome.refused) fault = `${what}: it was taken`;
  } catch (error) {
    fault = `${what}: ${error}`;
  }
  try {
    world.dispose();
    outer.dispose();
  } catch (error) {
    fault ??= `${what}: ${error}`;
  }
  const left = liveOn(backends) - before;
  return fault ?? (left === 0 ? undefined : `${what}: ${left} bytes were not given back`);
}

function noteUnnamed(trials: readonly Trial[], message: string, refusals: Refusals | undefined): void {
  const [{ label, paths }] = trials as [Trial];
  const [path = ""] = paths;
  if (label !== `${path} is ${OF_NO_TYPE}`) return;
  const name = path.split(".").at(-1);
  if (!new RegExp(`\\b${name}\\b`).test(message)) refusals?.unnamed.set(path, message);
}

function liveOn({ backend, other }: Backends): number {
  return backend.memoryUse().live + other.memoryUse().live;
}

interface Outcome {
  readonly refused: boolean;
  readonly fault?: string;
  /** The typed error that refused the call. */
  readonly error?: LockstepError;
}

async function run(
  target: Target,
  self: object | undefined,
  args: readonly unknown[],
  world: World,
): Promise<Outcome> {
  const scope = new Scope();
  world.scope = scope;
  const before = world.state();
  try {
    const result: unknown = await target(self, args);
    disposeAll(result);
    return { refused: false };
  } catch (error) {
    // a MismatchError is the result of a comparison, not a refusal
    if (error instanceof MismatchError) return { refused: false };
    if (!(error instanceof LockstepError)) return { refused: true, fault: `${error} is no typed error` };
    const changed = differences(before, world.state());
    const refused = { refused: true, error };
    return changed
      ? { ...refused, fault: `refused (${error.message}), and yet changed: ${changed}` }
      : refused;
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
  if (isPlain(result)) for (const each of Object.values(result)) dispose(each);
}

/** Makes a valid call. It must be accepted, and may write only the tensors that its row lists. */
export async function valid(
  target: Target,
  row: Row,
  call: number,
  backends: Backends,
): Promise<string | undefined> {
  const live = liveOn(backends);
  const fault = await validly(target, row, call, backends);
  const left = liveOn(backends) - live;
  return fault ?? (left === 0 ? undefined : `the valid call keeps ${left} bytes`);
}

async function validly(
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
    const written = writtenIn(row, args, self);
    const before = world.state(written);
    const result: unknown = await target(self, args);
    const after = world.state(written);
    disposeAll(result);
    const names = Object.keys(before).filter((key) => /^(f32|bf16|f16|i32|u|e|member|canary)/.test(key));
    const changed = names.filter((key) => key in after && before[key] !== after[key]);
    return changed.length > 0 ? `the valid call changes ${changed.join(", ")}` : undefined;
  } catch (error) {
    return `the valid call throws ${error instanceof Error ? error.stack : error}`;
  } finally {
    world.dispose();
    outer.dispose();
  }
}

function writtenIn({ writes = [] }: Row, args: readonly unknown[], self: unknown): ReadonlySet<Tensor> {
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
      let at: unknown = arg;
      for (const key of keys) at = isPlain(at) ? Reflect.get(at, key) : undefined;
      add(at);
    }
  }
  return tensors;
}
