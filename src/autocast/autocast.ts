/** Where low precision is on: regions of a program, and what happens as the outermost one ends. */
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
  /** Computes in high precision and records amaxes, so that scales are known later. Default false. */
  readonly calibrating?: boolean | undefined;
  /** Over which delayed scaling reduces its amaxes. */
  readonly amaxReductionGroup?: AmaxReductionGroup | undefined;
  /** Where given, a recipe that it does not support is refused on entry rather than by the first layer. */
  readonly backend?: Backend | undefined;
}

/** A part of a program in which one recipe is on, or none. */
export interface Region {
  readonly enabled: boolean;
  readonly calibrating: boolean;
  readonly recipe: Recipe;
  readonly group: AmaxReductionGroup | undefined;
  /** What is updated when the outermost region that is on, or calibrates, ends; absent where none is around. */
  readonly updates: ScaleUpdates | undefined;
}

const regions = platform.ambient<Region>();

/** Regions of scopes that have ended: what an async function has set, its caller still sees after awaiting it. */
const ended = new WeakMap<Region, { readonly outer: Region | undefined }>();

/** Updates whose outermost region has ended. */
const finished = new WeakSet<ScaleUpdates>();

/** The innermost region around a call. */
export function currentRegion(): Region | undefined {
  let region = regions.get();
  for (let end = region && ended.get(region); end; end = region && ended.get(region)) region = end.outer;
  return region;
}

interface Entered {
  readonly region: Region;
  readonly outer: Region | undefined;
  /** What has to happen once the region around is current again. */
  readonly leave: () => void;
}

/** Throws `ArgumentError` where options were left out, or the body. */
export function requireBody(op: string, body: () => unknown): void {
  if (typeof body !== "function")
    throw new ArgumentError(`${op}: there is no body; call it as ${op}({ recipe }, () => ...)`);
}

/** Throws `ArgumentError` for what cannot reduce. */
function requireGroup(group: AmaxReductionGroup): void {
  if (!Number.isSafeInteger(group?.size) || group.size < 1)
    throw new ArgumentError(
      `autocast: amaxReductionGroup has size ${group?.size}; it is the number of members, a whole one from 1`,
    );
  if (typeof group.reduceMax !== "function")
    throw new ArgumentError(
      "autocast: amaxReductionGroup has no reduceMax; give it as { size, reduceMax(tensors) }",
    );
}

const checkOptions = optionsOf<AutocastOptions>({
  recipe: (user, _name, recipe) => requireRecipe(user, recipe),
  enabled: boolean,
  calibrating: boolean,
  amaxReductionGroup: (_user, _name, group) => requireGroup(group as AmaxReductionGroup),
  backend: (user, _name, backend) => requireBackend(user, backend as Backend),
});

/** A region that is ready to be entered. Throws while nothing has changed yet. */
function prepare(options: AutocastOptions): Entered {
  if (options instanceof Recipe) throw new ArgumentError("autocast: a recipe is given as { recipe }");
  checkOptions("autocast", options);
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
      // one that outlives the outermost region updates what it has recorded since
      if (!updates || (around && !finished.has(around))) return;
      finished.add(updates);
      if (training()) updates.run();
    },
  };
}

/**
 * Runs `body` with the recipe on: layers in it quantize as that says. `body` may be async; what it awaits belongs to the
 * region, and concurrent runs keep theirs apart. Regions nest; the inner one counts, and one with `enabled: false` computes
 * in high precision. As the outermost one ends, by an exception too, delayed scaling makes its new scales; where that fails
 * after an exception, it is the exception that is thrown, and a line on the console has the failure.
 *
 * @throws `UnsupportedError` for a recipe that `backend` does not support, before anything has changed.
 * @throws `ArgumentError` for an option outside its domain and for what is no function, `DisposedError` for a backend that
 * was disposed of; what the body throws goes through.
 */
export function autocast<R>(options: AutocastOptions, body: () => R): R {
  requireBody("autocast", body);
  const { region, leave } = prepare(options);
  const fail = (error: unknown): never => {
    try {
      leave();
    } catch (after) {
      console.warn(`lockstep: after an error in the body of autocast its scales could not follow: ${after}`);
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

/** Runs `body` in a region that may have ended, or outside of all: what is computed a second time. No scale follows. */
export function runRegion<R>(region: Region | undefined, body: () => R): R {
  // a copy, which has not ended
  return regions.run(region && { ...region, updates: undefined }, body);
}

/**
 * As `autocast`, until the end of the block: `using region = autocastScope({ recipe })`. Flows of calls that run
 * side by side are kept apart by `autocast` alone. Disposed of a second time it does nothing; before a region inside,
 * it leaves that one on.
 *
 * @throws `ArgumentError` for an option outside its domain, `DisposedError` for a backend that was disposed of.
 */
export function autocastScope(options: AutocastOptions = {}): Disposable {
  const { region, outer, leave } = prepare(options);
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
