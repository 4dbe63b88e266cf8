/**
 * Routes of products on a GPU. A route says which kernel, operands and algorithm compute a product. It is decided once for all
 * products with the same shapes, types and options, and then cached.
 */
import { chipOf, type Gpu, unknownOrder, unverifiedPair } from "../../../formats/chips.js";
import { DATAPATHS, type DatapathFamily, type DatapathRow, datapathFor } from "../../../formats/datapath.js";
import type { GemmAlgorithm } from "../../../formats/gemm-algorithm.js";
import type { Agreement, Support } from "../../backend.js";
import { extentOf, type GemmArgs } from "../../ops/gemm.js";
import type { DeviceFacts, DeviceHandle } from "../addon.js";
import type { LoweringContext } from "../lowering.js";
import { type Attempt, attemptsFor, isAddedInPlace } from "./attempt.js";
import { type BlasProduct, describe } from "./descriptor.js";
import { fewRowsSplits } from "./few-rows.js";
import { type AlgorithmRequirements, chooseAlgorithm } from "./plan.js";
import { type Slice, slicesOf, splitsDifferently } from "./split-k.js";

export type Route =
  | { readonly kind: "refused"; readonly support: Support & { readonly ok: false } }
  /** The sums are empty. Only our epilogue runs. */
  | { readonly kind: "empty"; readonly support: Support }
  /** Our own kernel computes the product. It serves the datapath fp32. */
  | { readonly kind: "plain"; readonly support: Support }
  /** Our own kernel multiplies a few bf16 rows by codes, with K in `splits` slices. */
  | { readonly kind: "fewRows"; readonly support: Support; readonly splits: number }
  | {
      readonly kind: "blas";
      readonly support: Support;
      readonly attempt: Attempt;
      /** The calls of cuBLASLt: one, or one per split of K. Each later call adds to the sums of the previous ones. */
      readonly products: readonly BlasProductCall[];
      /** The number of splits of K. */
      readonly splits: number;
      /** The algorithm, if there is a single call. Absent if each split of K has an algorithm of its own. */
      readonly algorithm?: GemmAlgorithm;
    };

/** One call of cuBLASLt. */
export interface BlasProductCall {
  /** The number of its plan (native/gemm/plan.h). */
  readonly plan: number;
  /** The offset into x in bytes. */
  readonly xOffset: number;
  /** The offset into w in bytes. */
  readonly wOffset: number;
}

/**
 * The maximum number of cached routes per device. When it is exceeded, the least recently used route is evicted and its plan
 * freed.
 */
export const MAX_ROUTES = 1024;

/** The values that determine a route. Products with equal signatures have equal routes. */
type Signature = readonly (string | number | boolean | undefined)[];

interface CachedRoute {
  readonly hash: number;
  readonly signature: Signature;
  readonly route: Route;
}

interface Cache {
  /** The cached routes by `hashOf`. Routes with the same hash are in one list. */
  readonly routes: Map<number, CachedRoute[]>;
  /** All cached routes. The most recently used one is last. */
  readonly recent: Set<CachedRoute>;
  /**
   * The last product and its route. For each product, `supports`, `run` and `algorithmFor` are called with the same arguments
   * object.
   */
  last?: { readonly args: GemmArgs; readonly route: Route };
}

const caches = new WeakMap<DeviceHandle, Cache>();

/** Returns the route of a product, from the cache if possible. */
export function routeOf(context: LoweringContext, args: GemmArgs): Route {
  const cache = cacheOf(context.device);
  if (cache.last?.args === args) return cache.last.route;
  const signature = signatureOf(args);
  const hash = hashOf(args);
  const cached =
    find(cache, hash, signature) ??
    remember(context, cache, { hash, signature, route: decide(context, args) });
  cache.recent.delete(cached);
  cache.recent.add(cached);
  cache.last = { args, route: cached.route };
  return cached.route;
}

function cacheOf(device: DeviceHandle): Cache {
  const existing = caches.get(device);
  if (existing) return existing;
  const cache: Cache = { routes: new Map(), recent: new Set() };
  caches.set(device, cache);
  return cache;
}

function find({ routes }: Cache, hash: number, signature: Signature): CachedRoute | undefined {
  const candidates = routes.get(hash);
  if (!candidates) return undefined;
  for (const cached of candidates) if (isSame(cached.signature, signature)) return cached;
  return undefined;
}

function isSame(a: Signature, b: Signature): boolean {
  for (let i = 0; i < a.length; i++) if (a[i] !== b[i]) return false;
  return true;
}

function remember(context: LoweringContext, cache: Cache, cached: CachedRoute): CachedRoute {
  const [oldest] = cache.recent;
  if (oldest && cache.recent.size >= MAX_ROUTES) evict(context, cache, oldest);
  const candidates = cache.routes.get(cached.hash);
  if (candidates) candidates.push(cached);
  else cache.routes.set(cached.hash, [cached]);
  return cached;
}

function evict(context: LoweringContext, { routes, recent }: Cache, cached: CachedRoute): void {
  const left = routes.get(cached.hash)?.filter((each) => each !== cached) ?? [];
  if (left.length > 0) routes.set(cached.hash, left);
  else routes.delete(cached.hash);
  recent.delete(cached);
  forget(context, cached.route);
}

function forget({ addon, device }: LoweringContext, route: Route): void {
  if (route.kind !== "blas") return;
  for (const plan of new Set(route.products.map(({ plan }) => plan))) addon.gemmForget(device, { plan });
}

/** Returns a 32-bit hash of the sizes of a product. */
function hashOf({ x, w }: GemmArgs): number {
  const [rows, depth] = extentOf(x);
  return (Math.imul(Math.imul(rows, 31) + depth, 31) + extentOf(w)[0]) | 0;
}

function signatureOf(args: GemmArgs): Signature {
  const { x, w, algorithm, c, bias, out, preGelu } = args;
  const [rows, depth] = extentOf(x);
  const [xTraits, wTraits] = [x.traits, w.traits];
  const alpha = Math.fround(args.alpha);
  return [
    args.batch ?? 1,
    rows,
    depth,
    x.transposed === true,
    xTraits.format,
    xTraits.scales?.format,
    xTraits.scales?.lines,
    xTraits.scales?.length,
    xTraits.scales?.pow2,
    x.tensorScale !== undefined,
    x.lineScales !== undefined,
    x.amax !== undefined,
    x.lineAmaxes !== undefined,
    extentOf(w)[0],
    w.transposed === true,
    wTraits.format,
    wTraits.scales?.format,
    wTraits.scales?.lines,
    wTraits.scales?.length,
    wTraits.scales?.pow2,
    w.blockScales?.lineStride,
    w.blockScales?.blockStride,
    w.tensorScale !== undefined,
    w.lineScales !== undefined,
    w.amax !== undefined,
    w.lineAmaxes !== undefined,
    args.datapath,
    args.splitAccumulator,
    args.splitK,
    algorithm && JSON.stringify(algorithm),
    alpha === 1 ? "one" : alpha > 0 ? "positive" : alpha < 0 ? "negative" : alpha === 0 ? "zero" : "nan",
    Math.fround(args.beta) !== 0 ? c?.dtype : undefined,
    isAddedInPlace(args),
    bias?.dtype,
    preGelu?.dtype,
    out.dtype,
  ];
}

/** Returns the datapath family of a GPU's tensor cores. For an unknown chip it is `fp32`, which our own kernel computes. */
export function nativeFamily(facts: Gpu): DatapathFamily {
  return chipOf(facts)?.datapath ?? "fp32";
}

function refusedRoute(reason: string): Route {
  return { kind: "refused", support: { ok: false, reason } };
}

function decide(context: LoweringContext, args: GemmArgs): Route {
  const { facts } = context;
  const { x, w, datapath, splitAccumulator, splitK, algorithm, preGelu } = args;
  const choice = datapathFor(datapath, x.traits, w.traits, splitAccumulator);
  if (!choice.ok) return refusedRoute(choice.reason);
  const chip = chipOf(facts);
  if (datapath !== "fp32" && datapath !== chip?.datapath) return refusedRoute(noDatapath(facts, datapath));
  const row: DatapathRow = DATAPATHS[choice.name];
  if (splitK !== "auto" && splitK > 1 && choice.splitTile === 0)
    return refusedRoute(`datapath ${choice.name} has no rule for split-K; use splitK 1`);
  const ordered = chip?.algorithms !== undefined && !row.approximate;
  const unknown = algorithm && ordered && unknownOrder(algorithm);
  if (unknown) return refusedRoute(unknown);
  const support = preGelu
    ? { ok: true as const, agrees: { approximate: FUSED_GELU } }
    : supportOf(context, row);
  if (preGelu && (datapath === "fp32" || extentOf(x)[1] === 0)) return refusedRoute(NO_LIBRARY);
  if (sizeOf(args) === 0 || extentOf(x)[1] === 0) return { kind: "empty", support };
  if (datapath === "fp32" || !chip) return { kind: "plain", support };
  const splits = fewRowsSplits(args, choice, facts);
  if (splits !== undefined) return { kind: "fewRows", support, splits };
  const { alignment, workspace } = chip;
  const attempts = attemptsFor(args, choice, alignment);
  if (typeof attempts === "string") return refusedRoute(attempts);
  return firstOf(context, args, { attempts, splitTile: choice.splitTile, support, ordered, workspace });
}

/** Why a product with a GELU fused by cuBLASLt agrees only approximately. */
const FUSED_GELU =
  "cuBLASLt's GELU is an unpublished approximation, computed of the sums before they are rounded (datapath.md §2)";
const NO_LIBRARY =
  "datapath fp32 and empty sums do not run in cuBLASLt, so GELU cannot be fused into them; use geluEpilogue exact";

function sizeOf({ x, w, batch = 1 }: GemmArgs): number {
  return batch * extentOf(x)[0] * extentOf(w)[0];
}

function noDatapath(facts: DeviceFacts, datapath: DatapathFamily): string {
  const native = nativeFamily(facts);
  const advice = native === "fp32" ? `use ${native}` : `use ${native} or fp32`;
  const why =
    native === "fp32" ? `; the order of additions on sm_${facts.major}${facts.minor} is not known` : "";
  return `${facts.name} has no datapath ${datapath}${why}; ${advice}, or the reference`;
}

/**
 * Returns how a product agrees with the reference. Our own kernel agrees by definition. cuBLASLt agrees if this chip and
 * version were measured; otherwise `unverified` is set.
 */
function supportOf({ addon, facts }: LoweringContext, row: DatapathRow): Support & { readonly ok: true } {
  const agrees: Agreement = row.approximate ? { approximate: row.approximate } : "bits";
  const pair = row.dotAdd && unverifiedPair(facts, addon.versions().cublasLt);
  if (!pair) return { ok: true, agrees };
  return { ok: true, agrees, unverified: row.measured ? pair : `${pair}; the rule is from ${row.source}` };
}

interface Choices {
  readonly attempts: readonly Attempt[];
  /** Split-K divides K at multiples of this many elements. 0: split-K is not supported. */
  readonly splitTile: number;
  readonly support: Support;
  readonly ordered: boolean;
  readonly workspace: number;
}

function firstOf(context: LoweringContext, args: GemmArgs, choices: Choices): Route {
  const { attempts, support, ordered, splitTile, workspace } = choices;
  const { algorithm: pinned } = args;
  const splitK = splitTile === 0 ? 1 : args.splitK;
  for (const attempt of attempts) {
    const extent = [attempt.x.lines, attempt.w.lines, attempt.x.depth] as const;
    if (pinned && !pinned.extent.every((size, i) => size === extent[i])) continue;
    const prepared = prepare(context, attempt.product, { extent, splitK, pinned, ordered, workspace });
    if (!prepared) continue;
    const { plan, algorithm } = prepared;
    const splits = algorithm.splitK;
    if (splitsDifferently(attempt, splits, splitTile)) {
      context.addon.gemmForget(context.device, { plan });
      continue;
    }
    const products = [{ plan, xOffset: 0, wOffset: 0 }];
    return { kind: "blas", support, attempt, products, splits, algorithm };
  }
  const split = pinned || splitK === "auto" || splitK === 1 ? undefined : inSplits(context, splitK, choices);
  return split ?? refusedRoute(noAlgorithm(context, args));
}

/** Creates a plan and chooses its algorithm. Returns undefined if there is no acceptable algorithm. */
function prepare(
  context: LoweringContext,
  product: BlasProduct,
  requirements: Omit<AlgorithmRequirements, "plan">,
) {
  const { addon, device } = context;
  const plan = addon.gemmPlan(device, describe(product));
  const algorithm = chooseAlgorithm(context, { ...requirements, plan });
  if (algorithm) return { plan, algorithm };
  addon.gemmForget(device, { plan });
  return undefined;
}

/**
 * Returns the route for split-K as datapath.md §2 defines it: one product per split, added in order in f32. Returns undefined
 * if some split has no acceptable algorithm.
 */
function inSplits(context: LoweringContext, splits: number, choices: Choices): Route | undefined {
  const { attempts, support, ordered, splitTile, workspace } = choices;
  for (const attempt of attempts) {
    const slices = slicesOf(attempt, splits, splitTile);
    const prepared = slices.map(({ product }) => {
      const extent = [attempt.x.lines, attempt.w.lines, product.depth] as const;
      return prepare(context, product, { extent, splitK: 1, ordered, workspace, alignment: 16 });
    });
    const accepted = prepared.filter((each) => each !== undefined);
    if (slices.length > 0 && accepted.length === slices.length) {
      const products = accepted.map(({ plan }, i) => ({ plan, ...(slices[i] as Slice).offsets }));
      return { kind: "blas", support, attempt, products, splits };
    }
    for (const { plan } of accepted) context.addon.gemmForget(context.device, { plan });
  }
  return undefined;
}

function noAlgorithm(
  { addon }: LoweringContext,
  { x, w, batch = 1, splitK, algorithm, preGelu }: GemmArgs,
): string {
  const { cublasLt } = addon.versions();
  const [[rows, depth], [columns]] = [extentOf(x), extentOf(w)];
  const batchText = batch > 1 ? `a batch of ${batch} ` : "";
  const product = `${batchText}${x.traits.format} [${rows},${depth}] by ${w.traits.format} [${columns},${depth}]`;
  if (algorithm) {
    const { version, id, tile, extent } = algorithm;
    return `cuBLASLt ${cublasLt} cannot multiply ${product} by the plan's algorithm ${id}, tile ${tile}, of version ${version} for ${extent.join("x")}; drop the algorithm from the plan`;
  }
  if (preGelu)
    return `cuBLASLt ${cublasLt} has no algorithm that multiplies ${product} and fuses GELU with ${preGelu.dtype} of its argument; use geluEpilogue exact`;
  const splits = splitK === 1 ? "" : ` with splitK ${splitK}`;
  return `cuBLASLt ${cublasLt} has no algorithm that multiplies ${product}${splits} in a known order of additions; use splitK 1, datapath fp32, or the reference`;
}
