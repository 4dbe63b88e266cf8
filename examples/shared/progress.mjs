/** The progress of a long job on stderr: a bar on a terminal, lines elsewhere. stdout contains only results. */

const WIDTH = 40;
const BETWEEN_DRAWINGS = 100;

/**
 * Shows the progress of `total` steps. `advance` counts steps, `line` prints a line on stdout above the bar, and `note`
 * prints a message if there is no bar.
 */
export function openProgress(total, stream = process.stderr) {
  const start = performance.now();
  let done = 0;
  let drawn = Number.NEGATIVE_INFINITY;
  const erase = () => stream.isTTY && stream.write("\r\x1b[K");
  const draw = () => {
    if (!stream.isTTY || done === total) return;
    drawn = performance.now();
    const filled = Math.round((WIDTH * done) / total);
    const passed = (drawn - start) / 1000;
    const left = done > 0 ? `, ${((passed * (total - done)) / done).toFixed(0)} s left` : "";
    const bar = "█".repeat(filled) + "░".repeat(WIDTH - filled);
    stream.write(`\r\x1b[K${bar} ${percentOf(done, total)} (${passed.toFixed(0)} s${left})`);
  };
  draw();
  return {
    advance(steps) {
      done += steps;
      if (performance.now() - drawn > BETWEEN_DRAWINGS) draw();
    },
    line(text) {
      erase();
      console.log(text);
      draw();
    },
    note(text) {
      if (!stream.isTTY) stream.write(`${percentOf(done, total)} ${text}\n`);
    },
    close: erase,
  };
}

function percentOf(done, total) {
  return `${((100 * done) / total).toFixed(0).padStart(3)} %`;
}
