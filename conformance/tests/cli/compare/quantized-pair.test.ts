/** `lockstep compare` finds the scales of consecutive codes row by row; each equals the scale at the element's position. */
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { ScalePlaces } from "../../../../src/cli/compare/quantized-pair.js";
import { BLOCK_FORMAT_NAMES, blockFormat } from "../../../../src/formats/block.js";
import type { Recipe } from "../../../../src/io/quantized/recipe.js";
import { copyGeometry } from "../../../../src/tensor/geometry.js";
import { linePlace, scaleIndex } from "../../../../src/tensor/places.js";
import { makeSpec } from "../../../../src/tensor/spec.js";
import { draws } from "../../harness/draws.js";

const COPIES = BLOCK_FORMAT_NAMES.flatMap((quantizer) =>
  blockFormat(quantizer).tiles.flatMap((tile) =>
    (["rowwise", "columnwise"] as const).map((direction) => ({ quantizer, tile, direction })),
  ),
);

describe("scales of consecutive codes", () => {
  it.each(COPIES)(
    "of $quantizer $tile, $direction, have the indices that the codes' positions give",
    ({ quantizer, tile, direction }) => {
      const spec = makeSpec(quantizer, { tile });
      const recipe: Recipe = { spec, shape: [128, 256], dtype: "f32", scales: "padded", usage: [direction] };
      const geometry = copyGeometry(spec, [128, 256], direction, "padded");
      const [rows, columns] = geometry.dataShape as [number, number];
      const positions = new ScalePlaces({ recipe, geometry });
      const range = fc.tuple(fc.nat(rows * columns - 1), fc.integer({ min: 1, max: 3 * columns }));
      fc.assert(
        fc.property(fc.array(range, { minLength: 1, maxLength: 3 }), (ranges) => {
          for (const [firstIndex, expectedPlaces] of ranges) {
            const count = Math.min(expectedPlaces, rows * columns - firstIndex);
            const expected = Array.from({ length: count }, (_, i) => {
              const [row, column] = [Math.floor((firstIndex + i) / columns), (firstIndex + i) % columns];
              const [dataRow, dataColumn] = geometry.data === "transposed" ? [column, row] : [row, column];
              return scaleIndex(spec, geometry, linePlace(geometry, dataRow, dataColumn));
            });
            expect([...positions.indices(firstIndex, count)]).toEqual(expected);
          }
        }),
        { numRuns: draws(20) },
      );
    },
  );
});
