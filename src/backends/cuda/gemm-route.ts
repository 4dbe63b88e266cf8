/** How a GPU computes a product: which kernel, on what, decided once for each kind of product. */
import { DATAPATHS, type DatapathFamily, type DatapathRow, datapathFor } from "../../formats/datapath.js";
import { type GemmAlgorithm, unknownOrder } from "../../formats/gemm-algorithm.js";
import type { DeviceFacts, DeviceHandle } from "../addon.js";
import type { Agreement, Support } from "../backend.js";
import { extentOf, type GemmArgs, type GemmOperand } from "../gemm-args.js";
import { type Attempt, attemptsFor, type Slice, slicesOf } from "./gemm-attempt.js";
import { type BlasProduct, describe } from "./gemm-descriptor.js";
import { type AlgorithmWish, chooseAlgorithm } from "./gemm-plan.js";
import type { LoweringContext } from "./lowering.js";

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
      /** Bytes, enough for every step. */
      readonly workspace: number;
      /** Parts K is cut in. */
      readonly parts: number;
      /** Of the one step there is; absent where split-K is several of them. */
      readonly algorithm?: GemmAlgorithm;
    };

/** One product by cuBLASLt. */
export interface Step {
  /** Its number in native/gemm-plan.h. */
  readonly plan: number;
  /** Bytes into the operands. */
  readonly xOffset: number;
  readonly wOffset: number;
}

/** Routes kept for a device; the oldest makes room, and its plan is forgotten. */
const MOST_ROUTES = 1024;

interface Cache {
  readonly routes: Map<string, Route>;
  /** What was asked about last: a product is asked about, run, and asked for its algorithm. */
  last?: { readonly args: GemmArgs; readonly route: Route };
}

const caches = new WeakMap<DeviceHandle, Cache>();

/** The route of a product, decided at the first of its kind. */
export function routeOf(context: LoweringContext, args: GemmArgs): Route {
  const cache = cacheOf(context.device);
  if (cache.last?.args === args) return cache.last.route;
  const key = keyOf(args);
  const route = cache.routes.get(key) ?? remember(context, cache, key, decide(context, args));
  cache.last = { args, route };
  return route;
}

function cacheOf(device: DeviceHandle): Cache {
  const known = caches.get(device);
  if (known) return known;
  const cache: Cache = { routes: new Map() };
  caches.set(device, cache);
  return cache;
}

function remember(context: LoweringContext, { routes }: Cache, key: string, route: Route): Route {
  const [oldest] = routes;
  if (oldest && routes.size >= MOST_ROUTES) {
    routes.delete(oldest[0]);
    forget(context, oldest[1]);
  }
  routes.set(key, route);
  return route;
}

function forget({ addon, device }: LoweringContext, route: Route): void {
  if (route.kind !== "blas") return;
  for (const plan of new Set(route.steps.map((step) => step.plan))) addon.gemmForget(device, { plan });
}

/** Everything that a route follows from. */
function keyOf(args: GemmArgs): string {
  const { x, w, datapath, splitAccumulator, splitK, algorithm, alpha, beta, c, bias, out } = args;
  const factor = Math.fround(alpha) === 1 ? "one" : Math.sign(Math.fround(alpha));
  const addend = Math.fround(beta) !== 0 ? c?.dtype : "";
  const pinned = algorithm ? JSON.stringify(algorithm) : "";
  return `${operandKey(x)};${operandKey(w)};${datapath},${splitAccumulator},${splitK},${pinned};${factor},${addend},${bias?.dtype},${out.dtype}`;
}

function operandKey({ data, transposed, traits, tensorScale, amax }: GemmOperand): string {
  const { format, scales } = traits;
  const blocks = scales ? `${scales.format},${scales.lines},${scales.length},${scales.pow2}` : "";
  return `${data.shape[0]},${data.shape[1]},${transposed},${format},${blocks},${tensorScale !== undefined},${amax !== undefined}`;
}

/** The family whose tensor cores a GPU has. */
function nativeFamily({ major }: DeviceFacts): DatapathFamily {
  if (major === 8) return "ada";
  return major === 9 ? "hopper" : "blackwell";
}

function refused(reason: string): Route {
  return { kind: "refused", support: { ok: false, reason } };
}

function decide(context: LoweringContext, args: GemmArgs): Route {
  const { facts } = context;
  const { x, w, datapath, splitAccumulator, splitK, algorithm } = args;
  const choice = datapathFor(datapath, x.traits, w.traits, splitAccumulator);
  if (!choice.ok) return refused(choice.reason);
  const own = nativeFamily(facts);
  if (datapath !== "fp32" && datapath !== own)
    return refused(`${facts.name} has no datapath ${datapath}; use ${own} or fp32, or the reference`);
  const row: DatapathRow = DATAPATHS[choice.name];
  if (splitK !== "auto" && splitK > 1 && choice.splitTile === 0)
    return refused(`datapath ${choice.name} has no rule for split-K; use splitK 1`);
  const isMeasured = facts.major === 9 && facts.minor === 0;
  const ordered = isMeasured && !row.approximate;
  const unknown = algorithm && ordered && unknownOrder(algorithm);
  if (unknown) return refused(unknown);
  const support = supportOf(row, isMeasured || datapath === "fp32");
  if (sizeOf(args) === 0 || extentOf(x)[1] === 0) return { kind: "empty", support };
  if (datapath === "fp32") return { kind: "plain", support };
  const attempts = attemptsFor(args, choice);
  if (typeof attempts === "string") return refused(attempts);
  return firstOf(context, args, { attempts, splitTile: choice.splitTile, support, ordered });
}

function sizeOf({ x, w }: GemmArgs): number {
  return extentOf(x)[0] * extentOf(w)[0];
}

function supportOf(row: DatapathRow, isMeasured: boolean): Support & { readonly ok: true } {
  const agrees: Agreement = row.approximate ? { approximate: row.approximate } : "bits";
  if (isMeasured && row.measured) return { ok: true, agrees };
  return {
    ok: true,
    agrees,
    unverified: `no GPU of this generation was measured; the rule is from ${row.source}`,
  };
}

interface Choices {
  readonly attempts: readonly Attempt[];
  /** K is cut in whole tiles of this; 0: not at all. */
  readonly splitTile: number;
  readonly support: Support;
  readonly ordered: boolean;
}

function firstOf(context: LoweringContext, args: GemmArgs, choices: Choices): Route {
  const { attempts, support, ordered, splitTile } = choices;
  const { algorithm: pinned } = args;
  const splitK = splitTile === 0 ? 1 : args.splitK;
  for (const attempt of attempts) {
    const extent = [attempt.x.lines, attempt.w.lines, attempt.x.depth] as const;
    if (pinned && !pinned.extent.every((size, i) => size === extent[i])) continue;
    const found = prepare(context, attempt.product, { extent, splitK, pinned, ordered });
    if (!found) continue;
    const { plan, algorithm, workspace } = found;
    const steps = [{ plan, xOffset: 0, wOffset: 0 }];
    return { kind: "blas", support, attempt, steps, workspace, parts: algorithm.splitK, algorithm };
  }
  const sliced = pinned || splitK === "auto" || splitK === 1 ? undefined : inSlices(context, splitK, choices);
  return sliced ?? refused(noAlgorithm(context, args));
}

/** A plan with an algorithm, where there is one. */
function prepare(context: LoweringContext, product: BlasProduct, wish: Omit<AlgorithmWish, "plan">) {
  const { addon, device } = context;
  const plan = addon.gemmPlan(device, describe(product));
  const chosen = chooseAlgorithm(context, { ...wish, plan });
  if (chosen) return { plan, ...chosen };
  addon.gemmForget(device, { plan });
  return undefined;
}

/** Split-K as datapath.md §2 says it is: the parts are products of their own, added in order in f32. */
function inSlices(context: LoweringContext, parts: number, choices: Choices): Route | undefined {
  const { attempts, support, ordered, splitTile } = choices;
  for (const attempt of attempts) {
    const slices = slicesOf(attempt, parts, splitTile);
    const found = slices.map(({ product }) => {
      const extent = [attempt.x.lines, attempt.w.lines, product.depth] as const;
      return prepare(context, product, { extent, splitK: 1, ordered, alignment: 16 });
    });
    const prepared = found.filter((each) => each !== undefined);
    if (slices.length > 0 && prepared.length === slices.length) {
      const steps = prepared.map(({ plan }, i) => ({ plan, ...(slices[i] as Slice).offsets }));
      const workspace = Math.max(...prepared.map((each) => each.workspace));
      return { kind: "blas", support, attempt, steps, workspace, parts };
    }
    for (const { plan } of prepared) context.addon.gemmForget(context.device, { plan });
  }
  return undefined;
}

function noAlgorithm({ addon }: LoweringContext, { x, w, splitK, algorithm }: GemmArgs): string {
  const { cublasLt } = addon.versions();
  const [[rows, depth], [columns]] = [extentOf(x), extentOf(w)];
  const product = `${x.traits.format} [${rows},${depth}] by ${w.traits.format} [${columns},${depth}]`;
  if (algorithm) {
    const { version, id, tile, extent } = algorithm;
    return `cuBLASLt ${cublasLt} cannot multiply ${product} by the plan's algorithm ${id}, tile ${tile}, of version ${version} for ${extent.join("x")}; drop the algorithm from the plan`;
  }
  const parts = splitK === 1 ? "" : ` in splitK ${splitK} parts`;
  return `cuBLASLt ${cublasLt} has no algorithm that multiplies ${product}${parts} in an order of additions that is known; use splitK 1, datapath fp32, or the reference`;
}
