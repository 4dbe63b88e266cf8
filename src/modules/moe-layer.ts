/** A mixture of experts: a router, and a feed-forward block for each expert. */

import { autocast } from "../autocast.js";
import type { Backend } from "../backends/backend.js";
import type { SwigluClamp } from "../backends/ops.js";
import { guardReceivers } from "../brand.js";
import type { ProcessGroup } from "../collectives/group.js";
import { ArgumentError, ShapeError } from "../errors.js";
import { activation, cast, gated } from "../functional/elementwise.js";
import { reshape } from "../functional/layout.js";
import { moePermute, moeUnpermute } from "../functional/moe-permute.js";
import { groupOf, processGroup } from "../functional/ranks.js";
import {
  fusedComputeScoreForMoeAuxLoss,
  fusedMoeAuxLoss,
  fusedTopkWithScoreFunction,
  ROUTER_OPTIONS,
  type RouterOptions,
} from "../functional/router.js";
import { gather } from "../functional/rows.js";
import { GATED_OPTIONS } from "../ops/elementwise/activation.js";
import { requireGroups } from "../ops/rows/topk.js";
import { boolean, finite, integer, listOf, needed, nested, oneOf, optionsOf } from "../options.js";
import { composed } from "../tape/composed.js";
import { type VariableLike, variableOf } from "../tape/differentiable.js";
import { noGrad } from "../tape/grad-mode.js";
import { wideOf } from "../tape/value.js";
import { Variable } from "../tape/variable.js";
import { requireScalar, requireWide } from "../tensor/require.js";
import { orDispose, Scope } from "../tensor/scope.js";
import type { Tensor } from "../tensor/tensor.js";
import { ExpertRanks, type TokenCounts } from "./expert-ranks.js";
import { GROUPED_LINEAR_OPTIONS, GroupedLinear, type GroupedLinearOptions } from "./grouped-linear.js";
import { MLP_ACTIVATIONS, type MLPActivation } from "./layer-norm-mlp.js";
import type { WeightUse } from "./linear/weight-cache.js";
import { Linear } from "./linear.js";
import { Module, requireSizes } from "./module.js";

/**
 * Options of `MoELayer`: the options of the router and of the experts' linear layers, and the activation between these layers.
 */
export interface MoELayerOptions extends GroupedLinearOptions, Omit<RouterOptions, "expertBias"> {
  /** The activation between the two linear layers of an expert. Default swiglu. */
  readonly activation?: MLPActivation | undefined;
  /**
   * Computes the clamped form of swiglu, as gpt-oss does, with these constants. Missing fields have the values of
   * `DEFAULT_CLAMP`. Default: not clamped.
   */
  readonly clamp?: Partial<SwigluClamp> | undefined;
  /**
   * The ranks among which the experts are divided: each has experts / n consecutive experts, and its own tokens. All ranks must
   * create the same layers, from equal random states, and make the same calls. Default: this rank has all experts.
   */
  readonly group?: ProcessGroup | undefined;
}

/** Options of one call of `MoELayer`. */
export interface MoELayerCall extends WeightUse {
  /** A bias of each expert, [experts], which is added to the scores by which experts are chosen. Default: none. */
  readonly expertBias?: Tensor | undefined;
  /**
   * The result of `exchangeCounts` for the same input and `expertBias`. Required if `group` divides the experts. Default: the
   * numbers of tokens are read on the host.
   */
  readonly tokenCounts?: TokenCounts | undefined;
}

/** The result of `MoELayer.forwardWithLoss`. */
export interface MoEResult {
  /** The result of `forward`. */
  readonly output: Variable;
  /** The loss that balances experts, f32 of shape []. */
  readonly auxLoss: Variable;
  /** The number of tokens of each expert, f32 [experts], without a gradient. */
  readonly tokensPerExpert: Variable;
}

const { expertBias: _, ...ROUTER } = ROUTER_OPTIONS;
const checkOptions = optionsOf<MoELayerOptions>({
  ...GROUPED_LINEAR_OPTIONS,
  ...ROUTER,
  activation: oneOf(Object.keys(MLP_ACTIVATIONS)),
  clamp: GATED_OPTIONS.clamp,
  group: processGroup,
});
const count = listOf(integer(0));
const checkCounts = optionsOf<TokenCounts>({ sent: needed(count), received: needed(count) }, "tokenCounts");
const checkCall = optionsOf<MoELayerCall>(
  {
    isFirstMicrobatch: boolean,
    skipFp8WeightUpdate: requireScalar,
    expertBias: requireWide,
    tokenCounts: nested(checkCounts),
  },
  "call",
);

const checkCountsCall = optionsOf<Pick<MoELayerCall, "expertBias">>({ expertBias: requireWide }, "call");

/**
 * Sends each token to `topk` of several experts and adds their results, each times its probability:
 *
 *     Σ_e p_e · fc2_e(activation(fc1_e(x)))
 *
 * The router multiplies x by `router.weight` [experts, hidden] in high precision, also in an autocast region, and chooses experts
 * as `functional.fusedTopkWithScoreFunction` does. `fc1` and `fc2` are `GroupedLinear`: `fc1.weight0` [ffnHidden, hidden] ([2 *
 * ffnHidden, hidden] for a gated activation), `fc2.weight0` [hidden, ffnHidden], and so on. The numbers of tokens are read on the
 * host. A token's bits do not depend on the experts of other tokens, unless an expert's rows share a scale.
 *
 * With `group`, each rank has some of the experts: `fc1` and `fc2` contain only these experts, in order. `exchangeCounts` tells
 * each rank how many tokens it will receive, and `forward` sends tokens to their experts and back. Results and gradients of
 * tokens and experts are bitwise equal to one rank with all experts and the tokens of all ranks in order, except for stochastic
 * rounding. Each rank has the router's gradient from its own tokens.
 *
 * @throws `ShapeError` for a number of experts that is not divisible by the number of ranks.
 * @throws `ArgumentError` for a missing or unknown option, an invalid option value, numbers of groups that do not fit the
 * experts, or a size that is not a positive integer, `DTypeError` for a parameter dtype other than f32, bf16 and f16,
 * `DisposedError` for a disposed backend.
 */
export class MoELayer extends Module {
  static {
    guardReceivers(this);
  }

  /** The linear layer of the router, without bias. */
  readonly router: Linear;
  /** The first linear layers of the experts. */
  readonly fc1: GroupedLinear;
  /** The second linear layers of the experts. */
  readonly fc2: GroupedLinear;
  readonly #routing: Omit<RouterOptions, "expertBias">;
  readonly #form: (typeof MLP_ACTIVATIONS)[MLPActivation];
  readonly #clamp: Partial<SwigluClamp> | undefined;
  readonly #ranks: ExpertRanks | undefined;

  constructor(
    backend: Backend,
    /** The last dimension of the input and of the result. */
    readonly hidden: number,
    /** The last dimension of the activation's result, which is the input of fc2. */
    readonly ffnHidden: number,
    /** The number of experts. */
    readonly numExperts: number,
    options: MoELayerOptions,
  ) {
    const ownOptions = checkOptions("MoELayer", options);
    super(backend, ownOptions);
    requireSizes("MoELayer", { hidden, ffnHidden, numExperts });
    const { activation: name = "swiglu", clamp, group, ...rest } = ownOptions;
    const ranks = groupOf("MoELayer", backend, { group });
    this.#ranks = ranks && new ExpertRanks(ranks, numExperts);
    const { topk, numGroups, groupTopk, scoreFunction, usePreSoftmax, scalingFactor, ...linear } = rest;
    if (clamp && name !== "swiglu")
      throw new ArgumentError(`MoELayer: only swiglu has a clamped form; activation is ${name}`);
    this.#routing = { topk, numGroups, groupTopk, scoreFunction, usePreSoftmax, scalingFactor };
    requireGroups("MoELayer", { columns: numExperts, k: topk, numGroups, groupTopk });
    this.#form = MLP_ACTIVATIONS[name];
    this.#clamp = clamp;
    const layerOptions = () => ({
      ...{ ...linear, dtype: this.dtype, random: this.random },
      ...(this.#ranks ? { initMethod: this.#ranks.initMethod(linear.initMethod) } : {}),
    });
    const count = this.#ranks?.localExperts ?? numExperts;
    const width = (this.#form.gated ? 2 : 1) * ffnHidden;
    [this.router, this.fc1, this.fc2] = orDispose((created) => {
      const addOwned = <M extends Module>(key: string, module: M): M => {
        created.push(module);
        return this.addModule(key, module);
      };
      const { dtype, random } = this;
      const router = { bias: false, dtype, random, initMethod: linear.initMethod };
      return [
        addOwned("router", new Linear(backend, hidden, numExperts, router)),
        addOwned("fc1", new GroupedLinear(backend, count, hidden, width, layerOptions())),
        addOwned("fc2", new GroupedLinear(backend, count, ffnHidden, hidden, layerOptions())),
      ] as const;
    });
  }

  /**
   * Returns the result for an input [..., hidden], in the same shape. The experts compute under the recipe of the autocast
   * region, or else in high precision. An input without rows gives a result without rows.
   *
   * @throws `ShapeError` or `DTypeError` for an input that does not fit the layers or their recipe, or an `expertBias` without
   * one element for each expert, `ArgumentError` for an `expertBias` with softmax, for `tokenCounts` that are missing or do not
   * have a number for each expert, and for call options that the recipe does not allow, `UnsupportedError` for a recipe that the
   * backend does not support, `DisposedError` for a disposed tensor.
   */
  forward(input: VariableLike, call: MoELayerCall = {}): Variable {
    const [output] = composed(() => [this.#run(input, call).output]);
    return output;
  }

  /**
   * Runs `forward`, and also returns the loss that balances experts: `functional.fusedMoeAuxLoss` of this call's tokens with the
   * factor `coeff`.
   *
   * @throws `ShapeError`, `DTypeError`, `ArgumentError`, `UnsupportedError` and `DisposedError` as `forward` does;
   * `ArgumentError` for a factor that is not a finite number.
   */
  forwardWithLoss(input: VariableLike, coeff: number, call: MoELayerCall = {}): MoEResult {
    finite("MoELayer", "coeff", coeff);
    const [output, auxLoss, tokensPerExpert] = composed(() => {
      const { output: out, logits, counts } = this.#run(input, call);
      const { topk, scoreFunction } = this.#routing;
      const { scores } = fusedComputeScoreForMoeAuxLoss(logits, { topk, scoreFunction });
      const totalNumTokens = Math.max(logits.shape[0] as number, 1);
      const loss = fusedMoeAuxLoss(scores, counts, {
        totalNumTokens,
        numExperts: this.numExperts,
        topk,
        coeff,
      });
      return [out, loss, new Variable(counts)];
    });
    return { output, auxLoss, tokensPerExpert };
  }

  /**
   * Returns the number of tokens of each expert and, if `group` divides the experts, the numbers of tokens that this rank will
   * receive. Pass the result as `tokenCounts` to the next call of `forward` or `forwardWithLoss` with the same input. All ranks
   * must call it.
   *
   * @throws `ShapeError` or `DTypeError` for an input that does not fit the layer, or an `expertBias` without one element for
   * each expert, `ArgumentError` for an `expertBias` with softmax and for invalid options of the call, `DisposedError` for a
   * disposed tensor or group, `DistributedError` for a group that has failed.
   */
  async exchangeCounts(
    input: VariableLike,
    call: Pick<MoELayerCall, "expertBias"> = {},
  ): Promise<TokenCounts> {
    const x = variableOf("MoELayer", "input", input);
    const { expertBias } = checkCountsCall("MoELayer", call);
    const counts = noGrad(() => {
      using scope = new Scope();
      const { tokensPerExpert } = this.#route(x, expertBias).routed;
      return [tokensPerExpert, this.#ranks?.exchange(tokensPerExpert)].map(
        (each) => each && scope.keep(each),
      );
    });
    try {
      const [sentCounts, receivedCounts] = await Promise.all(
        counts.map(async (countTensor) => countTensor && [...(await countTensor.data())]),
      );
      return { sent: sentCounts ?? [], received: receivedCounts ?? sentCounts ?? [] };
    } finally {
      for (const each of counts) each?.dispose();
    }
  }

  /** Chooses experts for the tokens of x. */
  #route(x: Variable, expertBias: Tensor | undefined) {
    const { shape } = x;
    if (shape.at(-1) !== this.hidden)
      throw new ShapeError(`MoELayer: the input is [${shape}]; its last size must be ${this.hidden}`);
    wideOf("MoELayer: the input", x.value);
    const tokens = reshape(x, [shape.slice(0, -1).reduce((product, size) => product * size, 1), this.hidden]);
    const logits = autocast({ enabled: false }, () => this.router.forward(cast(tokens, this.router.dtype)));
    return { tokens, logits, routed: fusedTopkWithScoreFunction(logits, { ...this.#routing, expertBias }) };
  }

  #run(input: VariableLike, call: MoELayerCall) {
    const x = variableOf("MoELayer", "input", input);
    const { expertBias, tokenCounts, ...weightUse } = checkCall("MoELayer", call);
    if (this.#ranks && !tokenCounts)
      throw new ArgumentError(
        "MoELayer: group divides the experts; give tokenCounts, the result of exchangeCounts for this input",
      );
    for (const [name, list] of Object.entries(tokenCounts ?? {}) as [string, readonly number[]][])
      if (list.length !== this.numExperts)
        throw new ArgumentError(
          `MoELayer: tokenCounts.${name} has ${list.length} numbers; give the ${this.numExperts} of exchangeCounts`,
        );
    const { tokens, logits, routed } = this.#route(x, expertBias);
    const { dtype } = wideOf("MoELayer: the input", x.value);
    const { probs, topkIndices, tokensPerExpert: counts } = routed;
    const permutation = moePermute(tokens, topkIndices, { mapType: "index", numExperts: this.numExperts });
    const sizes = tokenCounts?.sent ?? Array.from(permutation.rowIdMap.tokensPerExpert.dataSync());
    const experts = (rows: Variable, mSplits: readonly number[]): Variable => {
      const h = this.fc1.forward(rows, mSplits, weightUse);
      return this.fc2.forward(this.#activated(h), mSplits, weightUse);
    };
    const y =
      this.#ranks && tokenCounts
        ? this.#ranks.run(permutation.output, tokenCounts, experts)
        : experts(permutation.output, sizes);
    const mergingProbs = gather(cast(probs, dtype), 1, topkIndices);
    const merged = moeUnpermute(y, permutation.rowIdMap, { mergingProbs });
    return { output: reshape(merged, x.shape), logits, counts };
  }

  #activated(h: Variable): Variable {
    const { kind, gated: isGated } = this.#form;
    return isGated ? gated(h, kind, { clamp: this.#clamp }) : activation(h, kind);
  }
}
