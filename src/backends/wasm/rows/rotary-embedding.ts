/** Rotary embeddings on the reference. */
import { rotaryRows } from "../../ops/rotary-embedding.js";
import { type Lowering, wideOf } from "../lowering.js";

const NULL = 0;

export const rotaryEmbedding: Lowering<"rotaryEmbedding"> = {
  run({ pool }, args) {
    const { x, cos, sin, startPositions, cuSeqlens, interleaved, inverse, out } = args;
    const { rows, ...sequences } = rotaryRows(args);
    const [heads, width] = x.shape.slice(-2) as [number, number];
    const [positions, pairs] = cos.shape as readonly [number, number];
    pool.run(
      "rotaryEmbedding",
      { total: rows, weight: heads * width * 2 },
      {
        x: x.address,
        xType: wideOf(x),
        out: out.address,
        outType: wideOf(out),
        cos: cos.address,
        sin: sin.address,
        starts: startPositions?.address ?? NULL,
        cumulative: cuSeqlens?.address ?? NULL,
        heads,
        width,
        pairs,
        positions,
        ...sequences,
        interleaved,
        inverse,
      },
    );
  },
};
