/** The groups and coordinates of a split: consecutive ranks are neighbours along tp, then along cp, dp and pp. */
import { expect, it } from "vitest";
import { loopbackOver } from "../../../../src/collectives/loopback/loopback.js";
import { useBackends } from "../../harness/ranks/backends.js";

const [FASTER, SLOWER] = [2, 3];
const backends = useBackends(FASTER * SLOWER);
const AXES = ["tp", "cp", "dp", "pp"] as const;
const PAIRS = AXES.flatMap((faster, i) => AXES.slice(i + 1).map((slower) => [faster, slower] as const));

it.each(PAIRS)("consecutive ranks are neighbours along %s, and not along %s", async (faster, slower) => {
  const groups = loopbackOver(backends);
  for (const group of groups) {
    const { rank } = group;
    const mesh = group.split({ [slower]: SLOWER, [faster]: FASTER });
    const [first, second] = [rank % FASTER, Math.floor(rank / FASTER)];
    const [coordinates, sizes] = [
      { tp: 0, cp: 0, dp: 0, pp: 0 },
      { tp: 1, cp: 1, dp: 1, pp: 1 },
    ];
    expect(mesh.coordinates).toEqual({ ...coordinates, [faster]: first, [slower]: second });
    expect(mesh.sizes).toEqual({ ...sizes, [faster]: FASTER, [slower]: SLOWER });
    for (const axis of AXES) {
      const members =
        axis === faster
          ? Array.from({ length: FASTER }, (_, i) => second * FASTER + i)
          : axis === slower
            ? Array.from({ length: SLOWER }, (_, i) => i * FASTER + first)
            : [rank];
      expect(mesh[axis].ranks, axis).toEqual(members);
      expect(mesh[axis].rank, axis).toBe(members.indexOf(rank));
    }
  }
});
