/** The exhaustive digest on the reference. */
import { OVERFLOW, ROUNDING } from "../../../formats/contract.gen.js";
import type { SweepArgs } from "../../ops.js";
import { halves, type Lowering } from "../lowering.js";

/** Blocks of 2^16 bit patterns in a chunk of 2^24; blocks are what threads share. */
const BLOCKS = 256;

export const sweep: Lowering<"sweep"> = {
  run({ pool }, { word, rounding, overflow, random, chunk, out }: SweepArgs) {
    out.write(new Uint32Array(2));
    const policy = [ROUNDING[rounding], OVERFLOW[overflow], ...halves(random.seed), ...halves(random.offset)];
    const first = chunk * BLOCKS;
    pool.run("sweep", { first, total: BLOCKS, weight: 1 << 16 }, (scratch) => [
      word,
      ...policy,
      out.address,
      scratch,
    ]);
  },
};
