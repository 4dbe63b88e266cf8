/** The tensors of a list are apart exactly if no output shares a byte with another tensor of the list. */
import * as fc from "fast-check";
import { expect, it } from "vitest";
import { zeros } from "../../../../src/ops/create.js";
import { listMemory } from "../../../../src/ops/overlap.js";
import { Scope } from "../../../../src/tensor/scope.js";
import { isOverlap } from "../../../../src/tensor/storage.js";
import type { Tensor } from "../../../../src/tensor/tensor.js";
import { draws } from "../../harness/draws.js";
import { useBackend } from "../../harness/suite.js";

const backend = useBackend();
/** Views begin at multiples of 64 elements. */
const UNIT = 64;
const UNITS = 80;
const view = fc.record({
  first: fc.nat({ max: UNITS - 4 }),
  size: fc.constantFrom(0, 1, UNIT - 1, UNIT, UNIT + 1, 3 * UNIT),
});
const views = fc.array(view, { maxLength: 5 });

const shareMemory = (a: Tensor, b: Tensor): boolean =>
  isOverlap(a.address, a.address + a.byteLength, b.address, b.address + b.byteLength);

it("lists of few tensors, also of the same outputs with other inputs", () => {
  let apartLists = 0;
  fc.assert(
    fc.property(views, views, views, (outputViews, inputViews, otherInputViews) => {
      using _ = new Scope();
      const buffer = zeros(backend(), "f32", [UNIT * UNITS]);
      const tensorsOf = (list: typeof outputViews) =>
        list.map(({ first, size }) => buffer.view(UNIT * first, [size]));
      const outputs = tensorsOf(outputViews);
      for (const inputs of [tensorsOf(inputViews), tensorsOf(otherInputViews), []]) {
        listMemory.clear();
        for (const x of outputs) listMemory.addOutput(x);
        for (const x of inputs) listMemory.addInput(x);
        const areApart = outputs.every(
          (x, i) => ![...outputs.slice(i + 1), ...inputs].some((y) => shareMemory(x, y)),
        );
        expect(listMemory.areApart()).toBe(areApart);
        if (areApart && outputs.length > 1 && inputs.length > 0) apartLists++;
      }
    }),
    { numRuns: draws(2000) },
  );
  expect(apartLists).toBeGreaterThan(5);
});

it("a long list", () => {
  using _ = new Scope();
  const buffer = zeros(backend(), "f32", [UNIT * 300]);
  const outputs = Array.from({ length: 150 }, (_, i) => buffer.view(2 * UNIT * ((i * 7) % 150), [UNIT]));
  listMemory.clear();
  for (const x of outputs) listMemory.addOutput(x);
  for (let i = 0; i < 150; i++) listMemory.addInput(buffer.view(UNIT * (2 * i + 1), [UNIT]));
  expect(listMemory.areApart()).toBe(true);
  listMemory.addInput(buffer.view(UNIT * 201, [UNIT + 1]));
  expect(listMemory.areApart()).toBe(false);
});
