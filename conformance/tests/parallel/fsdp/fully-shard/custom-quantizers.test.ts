/** Sharded weights under custom quantizers, which take no ranks into account, and the quantizers of quantized weights. */
import { describe, expect, it } from "vitest";
import type { Backend } from "../../../../../src/backends/backend.js";
import { loopbackOver } from "../../../../../src/collectives/loopback/loopback.js";
import {
  autocast,
  CustomRecipe,
  DelayedScaling,
  Float8CurrentScalingQuantizer,
  Float8RowQuantizer,
  fullyShard,
  Linear,
  noGrad,
  QuantizedTensor,
  type Quantizer,
  quantizedModelInit,
  RandomState,
  Scope,
  type Tensor,
  tensor,
  type Value,
  Variable,
  zeros,
} from "../../../../../src/index.js";
import { wideTensor } from "../../../../../src/modules/parameter.js";
import { normal } from "../../../../../src/random.js";
import { useBackends } from "../../../harness/ranks/backends.js";

const RANKS = 2;
const [ROWS, FROM, TO] = [16, 32, 64];
const backends = useBackends(RANKS);
const values = (seed: number, count: number): Float32Array =>
  normal({ seed: BigInt(seed), offset: 0n }, count, 1);

/** Quantizers whose scales depend on rows of several ranks: on the amax of the tensor, or of a column. */
const QUANTIZERS = {
  "an amax of the tensor": () => new Float8CurrentScalingQuantizer(),
  "scales of rows and columns": () => new Float8RowQuantizer(),
} as const satisfies Record<string, () => Quantizer>;
/** Initial weights whose largest values are in the last rows, which the last rank has. */
const initMethod = (): Float32Array => values(1, FROM * TO).map((x, i) => x * (1 + Math.floor(i / FROM)));

const WAYS = Object.entries(QUANTIZERS).flatMap(([name, make]) =>
  [false, true].map((isQuantized) => [name, isQuantized, make] as const),
);

describe("a sharded weight under custom quantizers", () => {
  it.each(WAYS)("with %s is quantized as a whole, and stays so: %s", async (_name, isQuantized, make) => {
    const recipe = new CustomRecipe({ quantizerFactory: make });
    /** Returns the result and the gradients of the input and of this rank's rows of the weight. */
    const pass = (layer: Linear): readonly Tensor[] => {
      using scope = new Scope();
      const { backend } = layer;
      const x = new Variable(wideTensor(backend, values(2, ROWS * FROM), [ROWS, FROM], "bf16"), true);
      const y = autocast({ recipe }, () => layer.forward(x));
      y.backward(wideTensor(backend, values(4, ROWS * TO), [ROWS, TO], "bf16"));
      const grads = [x.grad, layer.weight.grad].map((grad) => scope.keep((grad as Tensor).clone()));
      x.zeroGrad();
      return [scope.keep(y.tensor.clone()), ...grads];
    };
    const groups = loopbackOver(backends, 1000);
    const layerOn = (backend: Backend): Linear =>
      quantizedModelInit(
        { enabled: isQuantized, recipe },
        () => new Linear(backend, FROM, TO, { initMethod, bias: false }),
      );
    const layers = groups.map(({ backend }) => layerOn(backend));
    const wholeLayer = layerOn(backends[0] as Backend);
    const [y, dx, dw] = pass(wholeLayer);
    // all ranks have the same samples, so that their mean gradient is the gradient
    for (const [i, layer] of layers.entries()) fullyShard(layer, groups[i] as (typeof groups)[number]);
    const results = layers.map(pass);
    const data = async (x: Tensor | undefined): Promise<number[]> =>
      Array.from((await x?.data()) as Uint16Array);
    for (const result of results) {
      expect(await data(result[0])).toEqual(await data(y));
      expect(await data(result[1])).toEqual(await data(dx));
    }
    expect((await Promise.all(results.map((result) => data(result[2])))).flat()).toEqual(await data(dw));
    for (const disposable of [...results.flat(), y, dx, dw, ...layers, wholeLayer]) disposable?.dispose();
  });
});

describe("the rows of a weight that stays quantized", () => {
  it("are values of any type, and keep their codes where a flag says so, also after a pass", async () => {
    const recipe = new DelayedScaling();
    const groups = loopbackOver(backends, 1000);
    const snapshots = groups.map((group) => {
      using scope = new Scope();
      const { backend } = group;
      const layer = quantizedModelInit(
        { recipe },
        () => new Linear(backend, FROM, TO, { random: new RandomState(1n) }),
      );
      fullyShard(layer, group);
      noGrad(() => autocast({ recipe }, () => layer.forward(zeros(backend, "bf16", [ROWS, FROM]))));
      const localValue = layer.weight.sharding?.localValue as Value;
      if (!(localValue instanceof QuantizedTensor)) throw new Error("the weight is not quantized");
      expect(localValue.dequantize("f32").dtype).toBe("f32");
      const [codes] = localValue.members as [Tensor];
      const codesBefore = scope.keep(codes.clone());
      const source = wideTensor(
        backend,
        values(3, (localValue.shape[0] as number) * FROM),
        [localValue.shape[0] as number, FROM],
        "bf16",
      );
      localValue.quantize_(source, { noop: tensor(backend, new Float32Array([1])) });
      const codesAfter = scope.keep((localValue.members[0] as Tensor).clone());
      localValue.quantize_(source);
      return [codesBefore, codesAfter, scope.keep((localValue.members[0] as Tensor).clone()), layer] as const;
    });
    for (const [codesBefore, codesAfter, isChanged] of snapshots) {
      expect(await codesAfter.data()).toEqual(await codesBefore.data());
      expect(await isChanged.data()).not.toEqual(await codesBefore.data());
    }
    for (const tensor of snapshots.flat()) tensor.dispose();
  });
});
