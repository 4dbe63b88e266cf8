/** A table of some held-out digits and each recipe's predictions. */
import { INPUTS } from "./data.mjs";
import { predict } from "./measure.mjs";

const SIDE = 28;
const SHADES = 6;
const DISPUTED = 10;
const AGREED = 3;

/**
 * The table: one column per digit, one row per recipe; wrong predictions are marked. Digits on which the recipes
 * disagree come first.
 */
export function digitTable(rows, truth) {
  const { heldBack, scores } = truth;
  const answers = [
    { name: "float64", scores },
    ...rows.map((row) => ({ name: row.name, scores: row.scores.hopper })),
  ].map(({ name, scores: table }) => ({ name, predictionOf: (digit) => predict(table, digit) }));
  const chosen = choose(heldBack.labels, answers);
  const head = chosen.map((digit) => `<th>${picture(heldBack.images, digit)}</th>`).join("");
  const truths = chosen.map((digit) => `<td>${heldBack.labels[digit]}</td>`).join("");
  const body = answers.map(({ name, predictionOf }) => {
    const cells = chosen.map((digit) => {
      const answer = predictionOf(digit);
      return answer === heldBack.labels[digit] ? `<td>${answer}</td>` : `<td class="wrong">${answer}</td>`;
    });
    return `<tr><th scope="row">${name}</th>${cells.join("")}</tr>`;
  });
  return `<table class="digits"><thead><tr><td></td>${head}</tr><tr class="truth"><th scope="row">written</th>${truths}</tr></thead>
<tbody>${body.join("\n")}</tbody></table>`;
}

/** The digits on which the recipes disagree most, then the first digits on which all agree. */
function choose(labels, answers) {
  const judged = [...labels.keys()].map((digit) => {
    const right = answers.filter(({ predictionOf }) => predictionOf(digit) === labels[digit]).length;
    return { digit, dispute: Math.min(right, answers.length - right), right };
  });
  const disputed = judged
    .filter(({ dispute }) => dispute > 0)
    .sort((a, b) => b.dispute - a.dispute || a.digit - b.digit);
  const agreed = judged.filter(({ right }) => right === answers.length);
  return [...disputed.slice(0, DISPUTED), ...agreed.slice(0, AGREED)].map(({ digit }) => digit);
}

/** A digit of 28 x 28 pixels as SVG with one path per shade. */
function picture(images, digit) {
  const paths = Array.from({ length: SHADES }, () => "");
  for (let i = 0; i < SIDE * SIDE; i++) {
    const shade = Math.round(images[digit * INPUTS + i] * SHADES);
    if (shade > 0) paths[shade - 1] += `M${i % SIDE} ${Math.floor(i / SIDE)}h1v1h-1z`;
  }
  const drawn = paths.map(
    (d, shade) => `<path fill-opacity="${((shade + 1) / SHADES).toFixed(2)}" d="${d}"/>`,
  );
  return `<svg class="digit" viewBox="0 0 ${SIDE} ${SIDE}" role="img" aria-label="a handwritten digit" shape-rendering="crispEdges">${drawn.join("")}</svg>`;
}
