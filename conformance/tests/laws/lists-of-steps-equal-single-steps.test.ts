/** A list of optimizer steps has the result of its steps one after the other, also if they share memory. */
import * as fc from "fast-check";
import { describe, it } from "vitest";
import { assertSameAnswer } from "../../laws/laws.js";
import { draws } from "../harness/draws.js";
import {
  adamwList,
  adamwOneByOne,
  adamwTogether,
  sgdList,
  sgdOneByOne,
  sgdTogether,
} from "../harness/step-lists.js";
import { useBackend } from "../harness/suite.js";

const backend = useBackend();
const length = fc.nat({ max: 12 });

describe("a list of steps equals its steps one after the other", () => {
  it("of sgd", () => {
    fc.assert(
      fc.property(sgdList(length), (list) =>
        assertSameAnswer(sgdTogether(backend(), list), sgdOneByOne(backend(), list)),
      ),
      { numRuns: draws(60) },
    );
  });

  it("of adamw", () => {
    fc.assert(
      fc.property(adamwList(length), (list) =>
        assertSameAnswer(adamwTogether(backend(), list), adamwOneByOne(backend(), list)),
      ),
      { numRuns: draws(60) },
    );
  });
});
