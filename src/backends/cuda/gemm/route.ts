/** How a GPU computes a product: which kernel, on what, decided once for each kind of product. */
import { chipOf, type Gpu, unknownOrder, unverifiedPair } from "../../../formats/chips.js";
import { DATAPATHS, type DatapathFamily, type DatapathRow, datapathFor } from "../../../formats/datapath.js";
import type { GemmAlgorithm } from "../../../formats/gemm-algorithm.js";
import type { Agreement, Support } from "../../backend.js";
import { extentOf, type GemmArgs } from "../../gemm-args.js";
import type { DeviceFacts, DeviceHandle } from "../addon.js";
import type { LoweringContext } from "../lowering.js";
import { type Attempt, attemptsFor, isAddedInPlace } from "./attempt.js";
import { type BlasProduct, describe } from "./descriptor.js";
import { isCutOtherwise, type Slice, slicesOf } from "./parts.js";
import { type AlgorithmWish, chooseAlgorithm } from "./plan.js";

export type Route =
  | { readonly kind: "refused"; readonly support: Support & { readonly ok: false } }
  /** Nothing is summed; the epilogue alone runs. */
  | { readonly kind: "empty"; readonly support: Support }
  /** Our own kernel, for the datapath fp32. */
  | { readonly kind: "plain"; readonly support: Support }
  | {
      readonly kind: "blas";
      readonly support: Support;
      readonly attempt: Attempt;
      /** Each adds to the sums of those before it. */
      readonly steps: readonly Step[];
      /** Parts K is cut in. */
      readonly parts: number;
      /** Of the one step there is; absent where split-K is several of them. */
      readonly algorithm?: GemmAlgorithm;
    };

/** One product by cuBLASLt. */
export interface Step {
  /** Its number in native/gemm/plan.h. */
  readonly plan: number;
  /** Bytes into the operands. */
  readonly xOffset: number;
  readonly wOffset: number;
}

/** Routes kept for a device; the one that was not taken for longest makes room, and its plan is forgotten. */
export const MAX_ROUTES = 1024;

/** The values that a route follows from; the same values, the same route. */
type Signature = readonly (string | number | boolean | undefined)[];

interface Known {
  readonly place: number;
  readonly signature: Signature;
  readonly route: Route;
}

interface Cache {
  /** By a number that the sizes give; few products share one. */
  readonly routes: Map<number, Known[]>;
  /** All of them, the one taken last at the end. */
  readonly recent: Set<Known>;
  /** What was asked about last: a product is asked about, run, and asked for its algorithm. */
  last?: { readonly args: GemmArgs; readonly route: Route };
}

const caches = new WeakMap<DeviceHandle, Cache>();

/** The route of a product, decided at the first of its kind. */
export function routeOf(context: LoweringContext, args: GemmArgs): Route {
  const cache = cacheOf(context.device);
  if (cache.last?.args === args) return cache.last.route;
  const signature = signatureOf(args);
  const place = placeOf(args);
  const known =
    find(cache, place, signature) ??
    remember(context, cache, { place, signature, route: decide(context, args) });
  cache.recent.delete(known);
  cache.recent.add(known);
  cache.last = { args, route: known.route };
  return known.route;
}

function cacheOf(device: DeviceHandle): Cache {
  const known = caches.get(device);
  if (known) return known;
  const cache: Cache = { routes: new Map(), recent: new Set() };
  caches.set(device, cache);
  return cache;
}

function find({ routes }: Cache, place: number, signature: Signature): Known | undefined {
  const candidates = routes.get(place);
  if (!candidates) return undefined;
  for (const known of candidates) if (isSame(known.signature, signature)) return known;
  return undefined;
}

function isSame(a: Signature, b: Signature): boolean {
  for (let i = 0; i < a.length; i++) if (a[i] !== b[i]) return false;
  return true;
}

function remember(context: LoweringContext, cache: Cache, known: Known): Known {
  const [oldest] = cache.recent;
  if (oldest && cache.recent.size >= MAX_ROUTES) evict(context, cache, oldest);
  const candidates = cache.routes.get(known.place);
  if (candidates) candidates.push(known);
  else cache.routes.set(known.place, [known]);
  return known;
}

function evict(context: LoweringContext, { routes, recent }: Cache, known: Known): void {
  const left = routes.get(known.place)?.filter((each) => each !== known) ?? [];
  if (left.length > 0) routes.set(known.place, left);
  else routes.delete(known.place);
  recent.delete(known);
  forget(context, known.route);
}

function forget({ addon, device }: LoweringContext, route: Route): void {
  if (route.kind !== "blas") return;
  for (const plan of new Set(route.steps.map((step) => step.plan))) addon.gemmForget(device, { plan });
}

/** A number of 32 bits from the sizes. */
function placeOf({ x, w }: GemmArgs): number {
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
    x.amax !== undefined,
    extentOf(w)[0],
    w.transposed === true,
    wTraits.format,
    wTraits.scales?.format,
    wTraits.scales?.lines,
    wTraits.scales?.length,
    wTraits.scales?.pow2,
    w.tensorScale !== undefined,
    w.amax !== undefined,
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

/** The family of a GPU's tensor cores; `fp32`, which has a kernel of its own, where theirs is not known. */
export function nativeFamily(facts: Gpu): DatapathFamily {
  return chipOf(facts)?.datapath ?? "fp32";
}

function refused(reason: string): Route {
  return { kind: "refused", support: { ok: false, reason } };
}

function decide(context: LoweringContext, args: GemmArgs): Route {
  const { facts } = context;
  const { x, w, datapath, splitAccumulator, splitK, algorithm, preGelu } = args;
  const choice = datapathFor(datapath, x.traits, w.traits, splitAccumulator);
  if (!choice.ok) return refused(choice.reason);
  const chip = chipOf(facts);
  if (datapath !== "fp32" && datapath !== chip?.datapath) return refused(noDatapath(facts, datapath));
  const row: DatapathRow = DATAPATHS[choice.name];
  if (splitK !== "auto" && splitK > 1 && choice.splitTile === 0)
    return refused(`datapath ${choice.name} has no rule for split-K; use splitK 1`);
  const ordered = chip?.algorithms !== undefined && !row.approximate;
  const unknown = algorithm && ordered && unknownOrder(algorithm);
  if (unknown) return refused(unknown);
  const support = preGelu
    ? { ok: true as const, agrees: { approximate: FUSED_GELU } }
    : supportOf(context, row);
  if (preGelu && (datapath === "fp32" || extentOf(x)[1] === 0)) return refused(NO_LIBRARY);
  if (sizeOf(args) === 0 || extentOf(x)[1] === 0) return { kind: "empty", support };
  if (datapath === "fp32" || !chip) return { kind: "plain", support };
  const { alignment, workspace } = chip;
  const attempts = attemptsFor(args, choice, alignment);
  if (typeof attempts === "string") return refused(attempts);
  return firstOf(context, args, { attempts, splitTile: choice.splitTile, support, ordered, workspace });
}

/** What `supports` says of GELU by cuBLASLt. */
const FUSED_GELU =
  "cuBLASLt's GELU is an approximation that nobody publishes, of the sums before they are rounded (datapath.md §2)";
const NO_LIBRARY =
  "datapath fp32 and empty sums are no products of cuBLASLt, which GELU could be fused with; use geluEpilogue exact";

function sizeOf({ x, w, batch = 1 }: GemmArgs): number {
  return batch * extentOf(x)[0] * extentOf(w)[0];
}

function noDatapath(facts: DeviceFacts, datapath: DatapathFamily): string {
  const own = nativeFamily(facts);
  const known = own === "fp32" ? `use ${own}` : `use ${own} or fp32`;
  const why = own === "fp32" ? `; how sm_${facts.major}${facts.minor} adds is not known` : "";
  return `${facts.name} has no datapath ${datapath}${why}; ${known}, or the reference`;
}

/** Bits are a promise of the definition for our own kernel, and of cuBLASLt where this chip and this version were measured. */
function supportOf({ addon, facts }: LoweringContext, row: DatapathRow): Support & { readonly ok: true } {
  const agrees: Agreement = row.approximate ? { approximate: row.approximate } : "bits";
  const pair = row.dotAdd && unverifiedPair(facts, addon.versions().cublasLt);
  if (!pair) return { ok: true, agrees };
  return { ok: true, agrees, unverified: row.measured ? pair : `${pair}; the rule is from ${row.source}` };
}

interface Choices {
  readonly attempts: readonly Attempt[];
  /** K is cut in whole tiles of this; 0: not at all. */
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
    const found = prepare(context, attempt.product, { extent, splitK, pinned, ordered, workspace });
    if (!found) continue;
    const { plan, algorithm } = found;
    const parts = algorithm.splitK;
    if (isCutOtherwise(attempt, parts, splitTile)) {
      context.addon.gemmForget(context.device, { plan });
      continue;
    }
    const steps = [{ plan, xOffset: 0, wOffset: 0 }];
    return { kind: "blas", support, attempt, steps, parts, algorithm };
  }
  const sliced = pinned || splitK === "auto" || splitK === 1 ? undefined : inSlices(context, splitK, choices);
  return sliced ?? refused(noAlgorithm(context, args));
}

/** A plan with an algorithm, where there is one. */
function prepare(context: LoweringContext, product: BlasProduct, wish: Omit<AlgorithmWish, "plan">) {
  const { addon, device } = context;
  const plan = addon.gemmPlan(device, describe(product));
  const algorithm = chooseAlgorithm(context, { ...wish, plan });
  if (algorithm) return { plan, algorithm };
  addon.gemmForget(device, { plan });
  return undefined;
}

/** Split-K as datapath.md §2 says it is: the parts are products of their own, added in order in f32. */
function inSlices(context: LoweringContext, parts: number, choices: Choices): Route | undefined {
  const { attempts, support, ordered, splitTile, workspace } = choices;
  for (const attempt of attempts) {
    const slices = slicesOf(attempt, parts, splitTile);
    const found = slices.map(({ product }) => {
      const extent = [attempt.x.lines, attempt.w.lines, product.depth] as const;
      return prepare(context, product, { extent, splitK: 1, ordered, workspace, alignment: 16 });
    });
    const prepared = found.filter((each) => each !== undefined);
    if (slices.length > 0 && prepared.length === slices.length) {
      const steps = prepared.map(({ plan }, i) => ({ plan, ...(slices[i] as Slice).offsets }));
      return { kind: "blas", support, attempt, steps, parts };
    }
    for (const { plan } of prepared) context.addon.gemmForget(context.device, { plan });
  }
  return undefined;
}

function noAlgorithm(
  { addon }: LoweringContext,
  { x, w, batch = 1, splitK, algorithm, preGelu }: GemmArgs,
): string {
  const { cublasLt } = addon.versions();
  const [[rows, depth], [columns]] = [extentOf(x), extentOf(w)];
  const many = batch > 1 ? `a batch of ${batch} ` : "";
  const product = `${many}${x.traits.format} [${rows},${depth}] by ${w.traits.format} [${columns},${depth}]`;
  if (algorithm) {
    const { version, id, tile, extent } = algorithm;
    return `cuBLASLt ${cublasLt} cannot multiply ${product} by the plan's algorithm ${id}, tile ${tile}, of version ${version} for ${extent.join("x")}; drop the algorithm from the plan`;
  }
  if (preGelu)
    return `cuBLASLt ${cublasLt} has no algorithm that multiplies ${product} and fuses GELU with ${preGelu.dtype} of its argument; use geluEpilogue exact`;
  const parts = splitK === 1 ? "" : ` in splitK ${splitK} parts`;
  return `cuBLASLt ${cublasLt} has no algorithm that multiplies ${product}${parts} in an order of additions that is known; use splitK 1, datapath fp32, or the reference`;
}
