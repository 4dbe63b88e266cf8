/** Autocast regions, and the scale updates that run when the outermost one ends. */
import { platform } from "#platform";
import { type Backend, requireBackend } from "../backends/backend.js";
import { ArgumentError } from "../errors.js";
import { boolean, optionsOf } from "../options.js";
import { DelayedScaling } from "../recipes/per-tensor.js";
import { Recipe, requireRecipe } from "../recipes/recipe.js";
import { getDefaultRecipe, requireRecipeSupport } from "../recipes/support.js";
import { training } from "../tape/grad-mode.js";
import { type AmaxReductionGroup, ScaleUpdates } from "../tape/scale-updates.js";

/** What `autocast` and `autocastScope` take; every field may be left out. */
export interface AutocastOptions {
  /** Default: that of `backend` where it is given, `getDefaultRecipe`, else `new DelayedScaling()`. */
  readonly recipe?: Recipe | undefined;
  /** Default true. */
  readonly enabled?: boolean | undefined;
  /** Computes in high precision but records amaxes, so that a later region starts with calibrated scales. Default false. */
  readonly calibrating?: boolean | undefined;
  /** The group over which delayed scaling reduces its amaxes. */
  readonly amaxReductionGroup?: AmaxReductionGroup | undefined;
  /** If given, a recipe that it does not support is refused on entry rather than by the first layer. */
  readonly backend?: Backend | undefined;
}

/** An autocast region: the recipe and options that apply to calls inside it. */
export interface Region {
  readonly enabled: boolean;
  readonly calibrating: boolean;
  readonly recipe: Recipe;
  readonly group: AmaxReductionGroup | undefined;
  /** The updates that run when the outermost enabled or calibrating region ends; undefined outside of such regions. */
  readonly updates: ScaleUpdates | undefined;
}

const regions = platform.ambient<Region>();

/**
 * Regions of `autocastScope` that have ended. After awaiting an async function, its caller still sees the region that the
 * function set.
 */
const ended = new WeakMap<Region, { readonly outer: Region | undefined }>();

/** The updates whose outermost region has ended. */
const finished = new WeakSet<ScaleUpdates>();

/** The innermost region around a call; undefined outside of all. */
export function currentRegion(): Region | undefined {
  let region = regions.get();
  for (let end = region && ended.get(region); end; end = region && ended.get(region)) region = end.outer;
  return region;
}

interface Entered {
  readonly region: Region;
  readonly outer: Region | undefined;
  /** Runs when the outer region is current again. */
  readonly leave: () => void;
}

/** Throws `ArgumentError` if the body is missing, or was given in place of the options. */
export function requireBody(op: string, body: () => unknown): void {
  if (typeof body !== "function")
    throw new ArgumentError(`${op}: there is no body; call it as ${op}({ recipe }, () => ...)`);
}

/** Throws `ArgumentError` for anything but a reduction group. */
function requireGroup(user: string, group: AmaxReductionGroup): void {
  if (!Number.isSafeInteger(group?.size) || group.size < 1)
    throw new ArgumentError(
      `${user}: amaxReductionGroup has size ${group?.size}; it is the number of members, a whole one from 1`,
    );
  if (typeof group.reduceMax !== "function")
    throw new ArgumentError(
      `${user}: amaxReductionGroup has no reduceMax; give it as { size, reduceMax(tensors) }`,
    );
}

const checkOptions = optionsOf<AutocastOptions>({
  recipe: (user, _name, recipe) => requireRecipe(user, recipe),
  enabled: boolean,
  calibrating: boolean,
  amaxReductionGroup: (user, _name, group) => requireGroup(user, group as AmaxReductionGroup),
  backend: (user, _name, backend) => requireBackend(user, backend as Backend),
});

/** Makes a region. Throws before anything has changed. */
function prepare(user: string, options: AutocastOptions): Entered {
  if (options instanceof Recipe) throw new ArgumentError(`${user}: a recipe is given as { recipe }`);
  checkOptions(user, options);
  const { enabled = true, calibrating = false, backend, amaxReductionGroup: group } = options;
  const recipe = options.recipe ?? (backend ? getDefaultRecipe(backend) : new DelayedScaling());
  if (enabled && backend) requireRecipeSupport(recipe, backend);
  const outer = currentRegion();
  const around = outer?.updates;
  const updates = around ?? (enabled || calibrating ? new ScaleUpdates() : undefined);
  const region: Region = { enabled, calibrating, recipe, group, updates };
  return {
    region,
    outer,
    leave: () => {
      // a region that outlives the outermost one runs the updates recorded since
      if (!updates || (around && !finished.has(around))) return;
      finished.add(updates);
      if (training()) updates.run();
    },
  };
}

/**
 * Runs `body` in an autocast region: its layers quantize as the recipe says. `body` may be async; what it awaits belongs to the
 * region, and concurrent calls are kept apart. Regions nest and the innermost applies; one with `enabled: false` computes in
 * high precision. When the outermost region ends, also by an exception, delayed scaling updates its scales. If that fails after
 * an exception, the exception is rethrown and the failure is printed to the console.
 *
 * @throws `UnsupportedError` for a recipe that `backend` does not support, before anything has changed.
 * @throws `ArgumentError` for an option outside its domain and for anything but a function, `DisposedError` for a backend that
 * was disposed of; errors of the body propagate.
 */
export function autocast<R>(options: AutocastOptions, body: () => R): R {
  requireBody("autocast", body);
  const { region, leave } = prepare("autocast", options);
  const fail = (error: unknown): never => {
    try {
      leave();
    } catch (after) {
      console.warn(
        `lockstep: after an error in the body of autocast, updating the scales failed as well: ${after}`,
      );
    }
    throw error;
  };
  const end = <T>(value: T): T => {
    leave();
    return value;
  };
  let result: R;
  try {
    result = regions.run(region, body);
  } catch (error) {
    return fail(error);
  }
  return result instanceof Promise ? (result.then(end, fail) as R) : end(result);
}

/** Runs `body` in a region that may have ended, or outside of all: for recomputation. No scales are updated. */
export function runRegion<R>(region: Region | undefined, body: () => R): R {
  // a copy, because the region itself may be marked as ended
  return regions.run(region && { ...region, updates: undefined }, body);
}

/**
 * As `autocast`, until the end of the block: `using region = autocastScope({ recipe })`. Only `autocast` keeps concurrent async
 * calls apart. Disposing of it twice does nothing; if a nested scope is still open, that one stays on.
 *
 * @throws `ArgumentError` for an option outside its domain, `DisposedError` for a backend that was disposed of.
 */
export function autocastScope(options: AutocastOptions = {}): Disposable {
  const { region, outer, leave } = prepare("autocastScope", options);
  regions.set(region);
  return {
    [Symbol.dispose]() {
      if (ended.has(region)) return;
      ended.set(region, { outer });
      if (regions.get() === region) regions.set(currentRegion());
      leave();
    },
  };
}
