/** Sharded weights under custom quantizers, which take no ranks into account, and the quantizers of quantized weights. */
import { describe, expect, it } from "vitest";
import { loopbackOver } from "../../../../../src/collectives/loopback/loopback.js";
import {
  autocast,
  CustomRecipe,
  DelayedScaling,
  Float8CurrentScalingQuantizer,
  fullyShard,
  Linear,
  noGrad,
  QuantizedTensor,
  quantizedModelInit,
  RandomState,
  type Recipe,
  Scope,
  type Tensor,
  tensor,
  type Value,
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

/** A quantizer with one amax for the tensor that it gets. The last rows have the largest values. */
const custom = (): Recipe =>
  new CustomRecipe({ quantizerFactory: () => new Float8CurrentScalingQuantizer() });
const initMethod = (): Float32Array => values(1, FROM * TO).map((x, i) => x * (1 + Math.floor(i / FROM)));

describe("a sharded weight under custom quantizers", () => {
  it.each([false, true])("is quantized as a whole, and stays so: %s", async (quantized) => {
    const forward = (layer: Linear): Tensor => {
      using scope = new Scope();
      const x = wideTensor(layer.backend, values(2, ROWS * FROM), [ROWS, FROM], "bf16");
      const y = noGrad(() => autocast({ recipe: custom() }, () => layer.forward(x)));
      return scope.keep(y.tensor.clone());
    };
    const groups = loopbackOver(backends, 1000);
    const make = (backend: Linear["backend"]): Linear =>
      quantizedModelInit(
        { enabled: quantized, recipe: custom() },
        () => new Linear(backend, FROM, TO, { initMethod }),
      );
    const layers = groups.map(({ backend }) => make(backend));
    const whole = make(groups[0]?.backend as Linear["backend"]);
    const wanted = forward(whole);
    for (const [i, layer] of layers.entries()) fullyShard(layer, groups[i] as (typeof groups)[number]);
    const seen = layers.map(forward);
    for (const y of seen) expect(await y.data()).toEqual(await wanted.data());
    for (const each of [...seen, wanted, ...layers, whole]) each.dispose();
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
