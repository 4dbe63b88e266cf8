/** The operation sweep on the reference: digests of the codes of all f32 bit patterns. */
import { OVERFLOW, ROUNDING } from "../../../formats/contract.gen.js";
import type { SweepArgs } from "../../ops.js";
import { drawsOf, type Lowering } from "../lowering.js";

/** The number of blocks of 2^16 bit patterns in a chunk of 2^24. Threads share a job in blocks. */
const BLOCKS = 256;

export const sweep: Lowering<"sweep"> = {
  run({ pool }, { word, rounding, overflow, random, chunk, out }: SweepArgs) {
    out.write(new Uint32Array(2));
    const policy = { rounding: ROUNDING[rounding], overflow: OVERFLOW[overflow], draws: drawsOf(random) };
    const job = { first: chunk * BLOCKS, total: BLOCKS, weight: 1 << 16 };
    pool.run("sweep", job, { word, ...policy, out: out.address });
  },
};
