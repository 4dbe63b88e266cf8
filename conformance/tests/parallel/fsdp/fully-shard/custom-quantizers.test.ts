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
  [false, true].map((quantized) => [name, quantized, make] as const),
);

describe("a sharded weight under custom quantizers", () => {
  it.each(WAYS)("with %s is quantized as a whole, and stays so: %s", async (_name, quantized, make) => {
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
        { enabled: quantized, recipe },
        () => new Linear(backend, FROM, TO, { initMethod, bias: false }),
      );
    const layers = groups.map(({ backend }) => layerOn(backend));
    const whole = layerOn(backends[0] as Backend);
    const [y, dx, dw] = pass(whole);
    // all ranks have the same samples, so that their mean gradient is the gradient
    for (const [i, layer] of layers.entries()) fullyShard(layer, groups[i] as (typeof groups)[number]);
    const seen = layers.map(pass);
    const data = async (x: Tensor | undefined): Promise<number[]> =>
      Array.from((await x?.data()) as Uint16Array);
    for (const each of seen) {
      expect(await data(each[0])).toEqual(await data(y));
      expect(await data(each[1])).toEqual(await data(dx));
    }
    expect((await Promise.all(seen.map((each) => data(each[2])))).flat()).toEqual(await data(dw));
    for (const each of [...seen.flat(), y, dx, dw, ...layers, whole]) each?.dispose();
  });
});

describe("the rows of a weight that stays quantized", () => {
  it("are values of any type, and keep their codes where a flag says so, also after a pass", async () => {
    const recipe = new DelayedScaling();
    const groups = loopbackOver(backends, 1000);
    const kept = groups.map((group) => {
      using scope = new Scope();
      const { backend } = group;
      const layer = quantizedModelInit(
        { recipe },
        () => new Linear(backend, FROM, TO, { random: new RandomState(1n) }),
      );
      fullyShard(layer, group);
      noGrad(() => autocast({ recipe }, () => layer.forward(zeros(backend, "bf16", [ROWS, FROM]))));
      const own = layer.weight.sharding?.localValue as Value;
      if (!(own instanceof QuantizedTensor)) throw new Error("the weight is not quantized");
      expect(own.dequantize("f32").dtype).toBe("f32");
      const [codes] = own.members as [Tensor];
      const before = scope.keep(codes.clone());
      const source = wideTensor(
        backend,
        values(3, (own.shape[0] as number) * FROM),
        [own.shape[0] as number, FROM],
        "bf16",
      );
      own.quantize_(source, { noop: tensor(backend, new Float32Array([1])) });
      const after = scope.keep((own.members[0] as Tensor).clone());
      own.quantize_(source);
      return [before, after, scope.keep((own.members[0] as Tensor).clone()), layer] as const;
    });
    for (const [before, after, changed] of kept) {
      expect(await after.data()).toEqual(await before.data());
      expect(await changed.data()).not.toEqual(await before.data());
    }
    for (const each of kept.flat()) each.dispose();
  });
});
