// Two ranks of one process that save checkpoints repeatedly until the process is killed. All elements of save n have the value n.
import { constantInit, Linear, loopbackGroup, RandomState, SGD } from "lockstep";
import { saveShardedCheckpoint } from "lockstep/io";

const folder = process.argv[2];
const groups = await loopbackGroup(2);
const runs = groups.map((group) => {
  const options = { dtype: "f32", group, parallelMode: "column", bias: false, random: new RandomState(1n) };
  const module = new Linear(group.backend, 128, 128, { ...options, initMethod: constantInit(0) });
  return {
    module,
    group,
    random: new RandomState(1n),
    optimizer: new SGD(module, { learningRate: 1, momentum: 0.5 }),
  };
});
for (let step = 0; ; step++) {
  for (const { module, optimizer } of runs) {
    const values = new Float32Array(64 * 128).fill(step);
    module.weight.tensor.write(values);
    for (const { buffers } of optimizer.slots.values())
      for (const each of buffers.values()) each.write(values);
  }
  await Promise.all(runs.map((run) => saveShardedCheckpoint(folder, { ...run, extra: { step } })));
  if (step === 0) console.log("saved");
}
