/** The scale update of delayed scaling, which works in place. */
import * as fc from "fast-check";
import { updateScales } from "../../../src/ops/update/delayed-scaling.js";
import type { Shape } from "../../../src/tensor/shape.js";
import { wideTensor } from "../../arbitraries/wide.js";
import * as oracle from "../../oracle/update/delayed-scaling.js";
import { download, fromCodes, type PlainTensor, upload } from "../../values/plain.js";
import { rounded, rowsOf } from "../../values/rounded.js";
import type { Operation } from "../operation.js";

/** The tensors in their state before the update. */
export interface UpdateScalesCase {
  /** The amax history, [length, n]. */
  readonly amaxHistory: PlainTensor<"f32">;
  readonly scale: PlainTensor<"f32">;
  readonly options: oracle.ScaleUpdate;
}

/** Amaxes that give no scale, and amaxes whose scale overflows. */
const EDGES = [0, 1 / 0, 2 ** -120, 2 ** -149];
const MAGNITUDE = 0x7fffffff;

const shapes = fc.tuple(
  fc.oneof(fc.constantFrom(1, 2, 3, 33, 129), fc.integer({ min: 1, max: 40 })),
  fc.oneof(fc.constantFrom(0, 1, 31, 32, 33), fc.integer({ min: 1, max: 70 })),
);

/** Histories with amaxes of any sign, or only positive ones. Some of the newest amaxes are 0. */
function history([length, slots]: readonly [number, number]): fc.Arbitrary<PlainTensor<"f32">> {
  const unused = fc.array(fc.nat(), { maxLength: 4 });
  return fc
    .tuple(wideTensor([length, slots], { dtype: "f32", edges: EDGES }), fc.boolean(), unused)
    .map(([drawn, signed, slotsUnused]) => {
      const codes = Array.from(drawn.codes, (code) => (signed ? code : code & MAGNITUDE));
      for (const slot of slots > 0 ? slotsUnused : []) codes[slot % slots] = 0;
      return fromCodes("f32", drawn.shape, codes);
    });
}

/** Updates of histories with these shapes. */
export function updateScalesCase(
  shape: fc.Arbitrary<readonly [number, number]>,
): fc.Arbitrary<UpdateScalesCase> {
  return shape.chain(([length, slots]) =>
    fc.record({
      amaxHistory: history([length, slots]),
      scale: wideTensor([slots] as Shape, { dtype: "f32", edges: [1 / 0, 0, 1] }),
      options: fc.record({
        formatMax: fc.constantFrom(448, 57344, 240),
        margin: fc.constantFrom(0, 1, -3, 20, -110, 140),
        algorithm: fc.constantFrom("max", "mostRecent"),
      }),
    }),
  );
}

export const updateScalesOperation: Operation<UpdateScalesCase> = {
  arbitrary: updateScalesCase(shapes),
  run(backend, { options, ...tensors }) {
    const amaxHistory = upload(backend, tensors.amaxHistory);
    const scale = upload(backend, tensors.scale);
    updateScales({ amaxHistory, scale, ...options });
    return { amaxHistory: download(amaxHistory), scale: download(scale) };
  },
  oracle({ amaxHistory, scale, options }) {
    const rows = rowsOf(amaxHistory);
    const slots = Array.from(scale.data, (value, i) =>
      oracle.updateScale({ history: rows.map((row) => row[i] as number), scale: value }, options),
    );
    const updated = rows.map((_, row) => slots.map(({ history }) => history[row] as number));
    return {
      amaxHistory: rounded("f32", amaxHistory.shape, updated.flat()),
      scale: rounded(
        "f32",
        scale.shape,
        slots.map((slot) => slot.scale),
      ),
    };
  },
};
