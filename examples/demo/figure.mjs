/** The error histograms of all recipes as one SVG file, readable on light and on dark backgrounds. */
import { CHART, charts } from "./histogram.mjs";

const COLUMNS = 4;
const GAP = 18;
const CAPTION = 20;
const CELL = { width: CHART.width + GAP, height: CHART.height + CAPTION + GAP };

/** The style sheet, with the colours of `shared/page.mjs` and `picture.mjs`. */
const STYLE = `text{font:11px system-ui,sans-serif;fill:#5d6874}.name{font-weight:600;font-size:13px;fill:#1d2329}
.page{fill:#fff}svg{--line:#d8dde3;--soft:#5d6874;--series-a:#4f86c6;--series-b:#c2410c}
.total{fill:var(--series-a);fill-opacity:.75}.accumulator{fill:none;stroke:var(--series-b);stroke-width:1.6}
@media(prefers-color-scheme:dark){text{fill:#9aa5b1}.name{fill:#e4e8ec}.page{fill:#15181c}
svg{--line:#353c44;--soft:#9aa5b1;--series-a:#5b93d3;--series-b:#fb923c}}`;

/** The legend of the charts; it takes the place of one more chart. */
const KEY = `<path class="total" d="M0 30h22v11H0z"/><text x="30" y="40">H200 − float64: the whole error</text>
<path class="accumulator" d="M0 64V52h22V64"/><text x="30" y="62">H200 − exact: the accumulator’s part</text>
<text y="84">across: error / root mean square of outputs</text><text y="100">up: number of outputs</text>`;

/** Returns the SVG text. */
export function figureOf(rows, truth) {
  const cells = charts(rows, truth).map(
    ({ name, note, body }) => `<text class="name" y="12">${name}</text>
<text x="${CHART.width}" y="12" text-anchor="end">${note}</text><g transform="translate(0 ${CAPTION})">${body}</g>`,
  );
  const placed = [...cells, KEY].map((cell, i) => {
    const x = GAP + (i % COLUMNS) * CELL.width;
    const y = GAP + Math.floor(i / COLUMNS) * CELL.height;
    return `<g transform="translate(${x} ${y})">${cell}</g>`;
  });
  const [width, height] = [
    GAP + COLUMNS * CELL.width,
    GAP + Math.ceil(placed.length / COLUMNS) * CELL.height,
  ];
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" role="img" aria-label="Output errors of each recipe">
<style>${STYLE}</style><path class="page" d="M0 0H${width}V${height}H0z"/>
${placed.join("\n")}
</svg>
`;
}
