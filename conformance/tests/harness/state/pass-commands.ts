/** Commands for forward and backward passes of layers. */
import fc from "fast-check";
import { expect } from "vitest";
import {
  ArgumentError,
  add,
  autocast,
  autocastScope,
  functional,
  recompute,
  type Tensor,
  tensor,
  Variable,
} from "../../../../src/index.js";
import type {
  CallModel,
  Codes,
  LayerModel,
  TrainingModel,
} from "../../../oracle/training/delayed-training.js";
import { assertSame } from "../../../values/difference.js";
import { download } from "../../../values/plain.js";
import { NamedCommand } from "./command.js";
import { matrix } from "./draws.js";
import { expectedGradients, expectedOutput, matrixTensor } from "./expected.js";
import { createRegion, type RegionDraw } from "./region-commands.js";
import type { World } from "./world.js";

const layer = fc.nat(2);

interface PassDraw extends CallModel {
  readonly layer: number;
  readonly x: Codes;
}

export const passDraw: fc.Arbitrary<PassDraw> = fc.record({
  layer,
  x: matrix,
  first: fc.constantFrom(undefined, undefined, true, false, false),
  skip: fc.constantFrom(undefined, undefined, undefined, 0 as const, 1 as const),
  recompute: fc.oneof({ weight: 3, arbitrary: fc.constant(false) }, fc.constant(true)),
  xNeedsGrad: fc.boolean(),
});

/**
 * Forward passes that form one graph: the sum of their results depends on all of them. Passes whose weight is quantized under
 * another recipe are refused.
 */
export class Forward extends NamedCommand {
  constructor(
    readonly flow: number,
    readonly passes: readonly PassDraw[],
  ) {
    super();
  }

  async act(model: TrainingModel, world: World): Promise<void> {
    await world.flows[this.flow]?.run(() => this.pass(model, world));
  }

  protected pass(model: TrainingModel, world: World): void {
    const { backend, graphs } = world;
    const recipe = model.recipe(this.flow);
    const results = this.passes.flatMap((draw) => {
      if (recipe && !model.layers[draw.layer]?.fits(recipe)) {
        expect(() => runForward(world, draw, createInput(backend, draw))).toThrow(ArgumentError);
        return [];
      }
      const passModel = model.forward(this.flow, model.layers[draw.layer] as LayerModel, draw.x, draw);
      const input = createInput(backend, draw);
      const out = runForward(world, draw, input);
      assertSame("output", download(out.tensor), download(expectedOutput(backend, passModel)));
      return { modelled: passModel, input, out };
    });
    if (!model.grad(this.flow) || results.length === 0) return;
    graphs.push({
      passes: results.map(({ modelled }) => modelled),
      inputs: results.map(({ input }) => input),
      out: results.map(({ out }) => out).reduce((sum, out) => functional.add(sum, out)),
    });
  }
}

/** Forward passes in a new region, which ends normally or by an error of its body. */
export class Iteration extends Forward {
  constructor(
    flow: number,
    passes: readonly PassDraw[],
    readonly region: RegionDraw,
    readonly throws: boolean,
  ) {
    super(flow, passes);
  }

  protected override pass(model: TrainingModel, world: World): void {
    const { modelled: regionModel, options } = createRegion(this.region, model, world);
    const body = (): void => {
      super.pass(model, world);
      if (this.throws) throw new RangeError("at the end of the body");
    };
    const runRegion = (): void => {
      using _region = this.region.style === "scope" ? autocastScope(options) : undefined;
      if (_region) body();
      else autocast(options, body);
    };
    model.enter(this.flow, regionModel);
    if (this.throws) expect(runRegion).toThrow("at the end of the body");
    else runRegion();
    model.leave(this.flow);
  }
}

function createInput(backend: World["backend"], { x, xNeedsGrad }: PassDraw): Variable {
  return new Variable(matrixTensor(backend, x), xNeedsGrad);
}

function runForward({ layers, backend }: World, draw: PassDraw, input: Variable): Variable {
  const { first, skip } = draw;
  const call = {
    isFirstMicrobatch: first,
    ...(skip === undefined ? {} : { skipFp8WeightUpdate: tensor(backend, [skip]) }),
  };
  const linear = layers[draw.layer];
  if (!linear) throw new RangeError("a layer that is there");
  return draw.recompute ? recompute((x) => linear.forward(x, call), input) : linear.forward(input, call);
}

/** The backward pass of one of the graphs, inside or outside of any region. */
export class Backward extends NamedCommand {
  constructor(
    readonly flow: number,
    readonly graphIndex: number,
    readonly grad: Codes,
  ) {
    super();
  }

  async act(model: TrainingModel, world: World): Promise<void> {
    const { backend, graphs } = world;
    const [graph] = graphs.splice(this.graphIndex % Math.max(1, graphs.length), 1);
    if (!graph) return;
    await world.flows[this.flow]?.run(() => {
      const inputs: (Tensor<"bf16"> | undefined)[] = [];
      const weights = new Map<LayerModel, Tensor>();
      model.backward(graph.passes, this.grad, (pass, scale) => {
        const expected = expectedGradients(backend, pass, this.grad, scale);
        inputs.unshift(pass.call.xNeedsGrad ? expected.x : undefined);
        const previous = weights.get(pass.layer);
        weights.set(pass.layer, previous ? add(previous, expected.weight) : expected.weight);
      });
      graph.out.backward(matrixTensor(backend, this.grad));
      graph.inputs.forEach(({ grad }, i) => {
        assertSameOrAbsent("the gradient of an input", grad, inputs[i]);
      });
      world.layers.forEach(({ weight }, i) => {
        assertSameOrAbsent(
          `the gradient of weight ${i}`,
          weight.grad,
          weights.get(model.layers[i] as LayerModel),
        );
        weight.zeroGrad();
      });
      for (const input of graph.inputs) input.zeroGrad();
    });
  }
}

function assertSameOrAbsent(name: string, actual: Tensor | undefined, expected: Tensor | undefined): void {
  expect(actual !== undefined, `${name} is there`).toBe(expected !== undefined);
  if (actual && expected) assertSame(name, download(actual), download(expected));
}
