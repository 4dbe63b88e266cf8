// Programs of ranks as data, and the function that runs the calls of one rank. The library is a parameter, because
// tests run the sources and processes run the built package.

/** @typedef {import("./case.js").RankCall} RankCall */

/**
 * Runs the calls of one rank and yields after each. Results are read at the end. Inputs are disposed of right after
 * their call.
 *
 * @param {{ empty: Function, add: Function, onSideStream: Function }} library
 * @param {import("../../../../src/collectives/group.js").ProcessGroup} world
 * @param {import("./case.js").RankProgram} program
 * @returns {Generator<void, Promise<(string | undefined)[]>, void>}
 */
export function* runCalls({ empty, add, onSideStream }, world, { mesh, calls }) {
  const groups = mesh ? world.split(mesh) : undefined;
  const results = [];
  for (const call of calls) {
    yield;
    const group = call.axis ? groups[call.axis] : world;
    const run = () => runCall(empty, group, call);
    const out = call.onSide ? onSideStream(group.backend, run) : run();
    if (out && call.addsToItself) {
      results.push(add(out, out));
      out.dispose();
    } else results.push(out);
  }
  return readAll(results);
}

async function readAll(results) {
  const lines = [];
  for (const result of results) {
    if (!result) {
      lines.push(undefined);
      continue;
    }
    const { buffer, byteOffset, byteLength } = await result.data();
    lines.push(
      `${result.dtype} ${result.shape} ${Buffer.from(buffer, byteOffset, byteLength).toString("base64")}`,
    );
    result.dispose();
  }
  return lines;
}

/** The input tensor of a call; undefined on a rank without one. */
function runCall(empty, group, { op, dtype, shape, bytes, options }) {
  if (op === "none") return undefined;
  const x = empty(group.backend, dtype, shape).write(new Uint8Array(Buffer.from(bytes, "base64")));
  if (op === "recv") return group.recv(x, options.from);
  const out = op === "send" ? group.send(x, options.to) : group[op](x, options);
  x.dispose();
  return out;
}
