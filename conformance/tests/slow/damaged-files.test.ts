/**
 * A million damaged files of every form of checkpoint, by the law of checkpoints/damaged-law.ts. The environment variables RUNS
 * and SEED set their number and select them.
 */
import { expect, it } from "vitest";
import { tell, tryDamaged } from "../checkpoints/files/damaged-law.js";
import { useBackend } from "../harness/suite.js";

const RUNS = Number(process.env.RUNS ?? 1_000_000);
const SEED = Number(process.env.SEED ?? 1);
const STEP = 10_000;
const backend = useBackend({ threads: 1, datapath: "hopper" });

it(
  `${RUNS} damaged files from seed ${SEED} on give reports or typed errors`,
  async () => {
    let triedCount = 0;
    for (let seed = SEED; seed < SEED + RUNS; seed += STEP) {
      const trial = { seed, runs: Math.min(STEP, SEED + RUNS - seed), conversionInterval: 32 };
      const tally = await tryDamaged(backend(), trial);
      tell(trial, tally);
      triedCount += Object.values(tally.outcomes).reduce((sum, count) => sum + count, 0);
    }
    expect(triedCount).toBe(RUNS);
  },
  600_000 + RUNS * 20,
);
