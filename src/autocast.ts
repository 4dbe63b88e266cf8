/** Autocast regions. A region sets the recipe by which layers quantize. Scales are updated when the outermost region ends. */
import { platform } from "#platform";
import { type Backend, openedBackend } from "./backends/backend.js";
import { ArgumentError } from "./errors.js";
import { boolean, describe, fieldOf, optionsOf } from "./options.js";
import type { AmaxReductionGroup } from "./quantizers/shard.js";
import { DelayedScaling } from "./recipes/per-tensor.js";
import { Recipe, recipeOption } from "./recipes/recipe.js";
import { getDefaultRecipe, requireRecipeSupport } from "./recipes/support.js";
import { training } from "./tape/grad-mode.js";
import { ScaleUpdates } from "./tape/scale-updates.js";

/** Options of `autocast` and `autocastScope`. All fields are optional. */
export interface AutocastOptions {
  /** The recipe. Default: `getDefaultRecipe(backend)` if `backend` is given, else `new DelayedScaling()`. */
  readonly recipe?: Recipe | undefined;
  /** Whether layers quantize. Default true. */
  readonly enabled?: boolean | undefined;
  /**
   * If true and `enabled` is false, layers compute in high precision but record the amax of each tensor. A later region then
   * starts with calibrated scales. Default false.
   */
  readonly calibrating?: boolean | undefined;
  /** The group over which delayed scaling reduces its amaxes. Default: none. */
  readonly amaxReductionGroup?: AmaxReductionGroup | undefined;
  /** If set, entering the region throws for a recipe that the backend does not support. Otherwise the first layer throws. */
  readonly backend?: Backend | undefined;
}

/** An autocast region: the recipe and options that apply to calls inside it. */
export interface Region {
  readonly enabled: boolean;
  readonly calibrating: boolean;
  readonly recipe: Recipe;
  readonly group: AmaxReductionGroup | undefined;
  /**
   * Collects the scale updates that run when the outermost enabled or calibrating region ends. Undefined outside such regions.
   */
  readonly updates: ScaleUpdates | undefined;
}

const regions = platform.ambient<Region>();

/**
 * The ended regions of `autocastScope`, each with its enclosing region. An async function that ends its region cannot reset the
 * region that its caller sees after the await, so `currentRegion` skips ended regions.
 */
const endedRegions = new WeakMap<Region, { readonly outer: Region | undefined }>();

/** The `ScaleUpdates` of outermost regions that have ended. */
const finishedUpdates = new WeakSet<ScaleUpdates>();

/** Returns the innermost region that is still open, or undefined outside all regions. */
export function currentRegion(): Region | undefined {
  let region = regions.get();
  for (let end = region && endedRegions.get(region); end; end = region && endedRegions.get(region))
    region = end.outer;
  return region;
}

/** The `ScaleUpdates` of outermost regions in which a layer has begun to quantize. */
const startedUpdates = new WeakSet<ScaleUpdates>();

/** Records that a layer begins to quantize in `region`. */
export function beginModule({ updates }: Region): void {
  if (updates) startedUpdates.add(updates);
}

/**
 * Returns whether layers quantize here: whether the innermost autocast region is enabled. Corresponds to
 * `FP8GlobalStateManager.is_fp8_enabled` of TransformerEngine.
 */
export function isFp8Enabled(): boolean {
  return currentRegion()?.enabled === true;
}

/** Returns whether the innermost autocast region has the option `calibrating`. */
export function isFp8Calibration(): boolean {
  return currentRegion()?.calibrating === true;
}

/** Returns the recipe of the innermost autocast region, also if that is not enabled. Undefined outside of all regions. */
export function getFp8Recipe(): Recipe | undefined {
  return currentRegion()?.recipe;
}

/** Returns the `amaxReductionGroup` of the innermost autocast region, or undefined. */
export function getFp8Group(): AmaxReductionGroup | undefined {
  return currentRegion()?.group;
}

/**
 * Returns whether no layer has begun to quantize yet in the outermost autocast region that is enabled or calibrating. False
 * outside of all regions and where the innermost one is not enabled. A question does not change the answer.
 */
export function isFirstFp8Module(): boolean {
  const region = currentRegion();
  return region?.enabled === true && region.updates !== undefined && !startedUpdates.has(region.updates);
}

interface RegionEntry {
  readonly region: Region;
  readonly outer: Region | undefined;
  /** Ends the region. Before, the caller must make `outer` the current region again. */
  readonly leave: () => void;
}

/** Throws `ArgumentError` if the body is missing or was passed in place of the options. */
export function requireBody(op: string, body: () => unknown): void {
  if (typeof body !== "function")
    throw new ArgumentError(`${op}: there is no body; call it as ${op}({ recipe }, () => ...)`);
}

/** Returns the argument if it is a reduction group. Throws `ArgumentError` if it is not. */
function requireGroup(caller: string, value: unknown): AmaxReductionGroup {
  const group = value as AmaxReductionGroup;
  const size = fieldOf(caller, "amaxReductionGroup", value, "size");
  if (!Number.isSafeInteger(size) || Number(size) < 1)
    throw new ArgumentError(
      `${caller}: amaxReductionGroup has size ${describe(size)}; it must be the number of members, an integer of at least 1`,
    );
  if (typeof fieldOf(caller, "amaxReductionGroup", value, "reduceMax") !== "function")
    throw new ArgumentError(
      `${caller}: amaxReductionGroup has no method reduceMax; give { size, reduceMax(tensors) }`,
    );
  return group;
}

const checkOptions = optionsOf<AutocastOptions>({
  recipe: recipeOption,
  enabled: boolean,
  calibrating: boolean,
  amaxReductionGroup: (caller, _name, group) => requireGroup(caller, group),
  backend: openedBackend,
});

/** Checks the options and creates a region. If it throws, nothing has changed. */
function prepare(caller: string, options: AutocastOptions): RegionEntry {
  if (options instanceof Recipe)
    throw new ArgumentError(`${caller}: the options are a recipe; give { recipe }`);
  const ownOptions = checkOptions(caller, options);
  const { enabled = true, calibrating = false, backend, amaxReductionGroup: group } = ownOptions;
  const recipe = ownOptions.recipe ?? (backend ? getDefaultRecipe(backend) : new DelayedScaling());
  if (enabled && backend) requireRecipeSupport(recipe, backend);
  const outer = currentRegion();
  const outerUpdates = outer?.updates;
  const updates = outerUpdates ?? (enabled || calibrating ? new ScaleUpdates() : undefined);
  const region: Region = { enabled, calibrating, recipe, group, updates };
  return {
    region,
    outer,
    leave: () => {
      // a nested region may outlive the outermost one; it then runs the updates recorded since the outermost one ended
      if (!updates || (outerUpdates && !finishedUpdates.has(outerUpdates))) return;
      finishedUpdates.add(updates);
      if (training()) updates.run();
    },
  };
}

/**
 * Runs `body` in an autocast region and returns its result. Inside the region, layers quantize by `options.recipe`.
 *
 * `body` may be async: what it awaits runs in the region too, and concurrent calls do not affect each other. Regions nest, and
 * the innermost one applies. A region with `enabled: false` computes in high precision. When the outermost region ends, delayed
 * scaling updates its scales, even if `body` throws. If this update fails after `body` has thrown, the failure is printed to
 * the console and the error of `body` is rethrown.
 *
 * @throws `UnsupportedError` if `backend` does not support the recipe; nothing has changed.
 * @throws `ArgumentError` for an invalid option value or a body that is not a function, `DisposedError` for a disposed backend.
 * Errors of the body propagate.
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

/**
 * Runs `body` in `region`, which may have ended, or outside all regions if it is undefined. No scales are updated.
 * Recomputation uses this.
 */
export function runRegion<R>(region: Region | undefined, body: () => R): R {
  // `region` itself may have ended, and currentRegion() skips ended regions; a copy has not ended
  return regions.run(region && { ...region, updates: undefined }, body);
}

/**
 * Enters an autocast region that ends with the enclosing block: `using region = autocastScope({ recipe })`. Otherwise it
 * behaves as `autocast`, except that concurrent async calls may affect each other. A second disposal does nothing. If a nested
 * scope is still open at disposal, the nested scope stays in force.
 *
 * @throws `UnsupportedError` if `backend` does not support the recipe; nothing has changed.
 * @throws `ArgumentError` for an invalid option value, `DisposedError` for a disposed backend.
 */
export function autocastScope(options: AutocastOptions = {}): Disposable {
  const { region, outer, leave } = prepare("autocastScope", options);
  regions.set(region);
  return {
    [Symbol.dispose]() {
      if (endedRegions.has(region)) return;
      // a region that has ended stays set; currentRegion() skips it
      endedRegions.set(region, { outer });
      leave();
    },
  };
}
