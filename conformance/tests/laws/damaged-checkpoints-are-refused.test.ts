/** Damaged files, by the law of damaged-law.ts. The environment variables RUNS and SEED set their number and select them. */
import { expect, it } from "vitest";
import { tell, tryDamaged } from "../checkpoints/files/damaged-law.js";
import { drawsOr, SEED } from "../harness/draws.js";
import { useBackend } from "../harness/suite.js";

const RUNS = drawsOr(3000);
const backend = useBackend({ threads: 1, datapath: "hopper" });

it(
  `${RUNS} damaged files from seed ${SEED} on give reports or typed errors`,
  async () => {
    const trial = { seed: SEED, runs: RUNS, conversionInterval: 8 };
    const tally = await tryDamaged(backend(), trial);
    tell(trial, tally);
    const { error, findings, sound } = tally.outcomes;
    if (RUNS < 1000) return;
    expect(error).toBeGreaterThan(RUNS / 10);
    expect(findings).toBeGreaterThan(RUNS / 50);
    expect(sound).toBeGreaterThan(RUNS / 100);
  },
  600_000 + RUNS * 20,
);
