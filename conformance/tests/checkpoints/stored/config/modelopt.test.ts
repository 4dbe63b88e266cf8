/** A module has the scheme of its entry in `quantized_layers`, or else of the nearest enclosing module that has an entry. */
import * as fc from "fast-check";
import { expect, it } from "vitest";
import { layerResolver } from "../../../../../src/checkpoints/stored/config/modelopt.js";

const part = fc.constantFrom("a", "b", "ab");
const name = fc.array(part, { minLength: 1, maxLength: 4 }).map((parts) => parts.join("."));

it("the longest listed name that is the module or encloses it decides, in any order of the list", () => {
  const property = fc.property(fc.uniqueArray(name, { maxLength: 6 }), name, (listed, module) => {
    const entries = listed.map((each) => [each, { quant_algo: `algorithm of ${each}` }] as const);
    const claim = layerResolver({ quantized_layers: Object.fromEntries(entries) })?.(module);
    const [nearest] = listed
      .filter((each) => `${module}.`.startsWith(`${each}.`))
      .sort((first, second) => second.length - first.length);
    if (nearest === undefined) expect(claim).toEqual({ kind: "unlisted" });
    else
      expect(claim).toMatchObject({
        kind: "quantized",
        scheme: { formats: [`algorithm of ${nearest}`] },
      });
  });
  fc.assert(property, {
    examples: [
      [["a", "a.b"], "a.b.ab"],
      [["a.b", "a"], "a.b.ab"],
      [["ab"], "a.b"],
    ],
  });
});
