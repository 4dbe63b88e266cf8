/** The table of the recorded runs in docs/models.md. */

/** The steps whose losses are shown. They have the same windows of the text. */
const SHOWN = [1, 6, 11, 16];

/** The contents of the section between the marks. */
export function section({ host, runs }) {
  const line = (cells) => `| ${cells.join(" | ")} |`;
  const rows = Object.entries(runs).map(([recipe, { seconds, losses, digests }]) =>
    line([
      `\`${recipe}\``,
      ...SHOWN.map((step) => losses[step - 1].toFixed(4)),
      `\`${digests.at(-1)}\``,
      String(seconds),
    ]),
  );
  return [
    `${host}, one thread; \`node examples/finetune/main.mjs --write\`:`,
    "",
    line([
      "recipe",
      ...SHOWN.map((step) => `loss of step ${step}`),
      "digest after the last step",
      "seconds of the CPU",
    ]),
    line(["---", ...SHOWN.map(() => "---:"), "---", "---:"]),
    ...rows,
    "",
  ].join("\n");
}
