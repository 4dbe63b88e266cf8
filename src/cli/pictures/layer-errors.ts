/** The errors of the layers of a model in several forms, as an SVG picture. */
import { escapeMarkup } from "./markup.js";

/** A form of a model and the relative RMS error of the weights of each layer; 0 for a layer that the form does not change. */
export interface LayerErrors {
  readonly name: string;
  readonly errors: readonly number[];
}

/** The area of the curves, in pixels, and the margins around it. */
const PLOT = { left: 76, top: 52, width: 760, height: 320 } as const;
const LEGEND_WIDTH = 230;
const [WIDTH, HEIGHT] = [PLOT.left + PLOT.width + LEGEND_WIDTH, PLOT.top + PLOT.height + 56];
/** The largest number of labels on the axis of layers. */
const MAX_LABELS = 16;

/** The palette of M. Okabe and K. Ito, "Color Universal Design" (2008), without black and yellow. */
const COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"] as const;
/** Lengths of dashes and gaps, for forms beyond the number of colours. */
const DASHES = ["", "6 3", "2 3", "8 3 2 3"] as const;

/** A coordinate with at most two digits after the point. */
const coordinate = (value: number): string => Number(value.toFixed(2)).toString();

const isDrawn = (error: number): boolean => error > 0 && Number.isFinite(error);

/** The first and last power of ten of the axis of errors: all errors lie between them. */
function decadesOf(forms: readonly LayerErrors[]): readonly [number, number] {
  const logErrors = forms.flatMap(({ errors }) => errors.filter(isDrawn)).map(Math.log10);
  if (logErrors.length === 0) return [-1, 0];
  const low = logErrors.reduce((minimum, each) => Math.min(minimum, each));
  const high = logErrors.reduce((maximum, each) => Math.max(maximum, each));
  return [Math.floor(low), Math.max(Math.ceil(high), Math.floor(low) + 1)];
}

/** A line of text with these attributes. */
const label = (x: number, y: number, text: string, attributes: string): string =>
  `<text x="${coordinate(x)}" y="${coordinate(y)}" ${attributes}>${escapeMarkup(text)}</text>`;

/**
 * Draws one curve for each form: the layers from left to right, the errors upward on a logarithmic axis. Layers without an error
 * have no point. Errors that are infinite or NaN have no point either; the legend counts them.
 */
export function layerErrorPicture(title: string, forms: readonly LayerErrors[]): string {
  const layers = forms.reduce((maximum, { errors }) => Math.max(maximum, errors.length), 1);
  const [low, high] = decadesOf(forms);
  const { left, top, width, height } = PLOT;
  const x = (layer: number): number => left + (width * (layer + 0.5)) / layers;
  const y = (error: number): number => top + (height * (high - Math.log10(error))) / (high - low);
  const step = Math.ceil(layers / MAX_LABELS);
  const decades = Array.from({ length: high - low + 1 }, (_, i) => low + i);
  const grid = decades.flatMap((decade) => {
    const height = coordinate(y(10 ** decade));
    return [
      `<path d="M${left} ${height}H${left + width}" stroke="#ddd"/>`,
      label(left - 8, y(10 ** decade) + 4, `${10 ** decade}`, 'text-anchor="end"'),
    ];
  });
  const numbers = Array.from({ length: Math.ceil(layers / step) }, (_, i) =>
    label(x(i * step), top + height + 18, `${i * step}`, 'text-anchor="middle"'),
  );
  const curves = forms.flatMap(({ name, errors }, i) => {
    const colour = COLOURS[i % COLOURS.length] as string;
    const dash = DASHES[Math.floor(i / COLOURS.length) % DASHES.length];
    const points = errors.flatMap((error, layer) => (isDrawn(error) ? [[x(layer), y(error)] as const] : []));
    const nonFiniteCount = errors.filter((error) => !Number.isFinite(error)).length;
    const legend =
      nonFiniteCount > 0
        ? `${name} (${nonFiniteCount} not finite)`
        : points.length > 0
          ? name
          : `${name} (no error)`;
    const row = top + 10 + 20 * i;
    const line = `fill="none" stroke="${colour}" stroke-width="2"${dash ? ` stroke-dasharray="${dash}"` : ""}`;
    return [
      `<polyline points="${points.map(([px, py]) => `${coordinate(px)},${coordinate(py)}`).join(" ")}" ${line}/>`,
      ...points.map(
        ([px, py]) => `<circle cx="${coordinate(px)}" cy="${coordinate(py)}" r="2.5" fill="${colour}"/>`,
      ),
      `<path d="M${left + width + 16} ${row}h22" ${line}/>`,
      label(left + width + 44, row + 4, legend, ""),
    ];
  });
  return `${[
    `<svg xmlns="http://www.w3.org/2000/svg" width="${WIDTH}" height="${Math.max(HEIGHT, top + 30 + 20 * forms.length)}" font-family="sans-serif" font-size="12">`,
    `<title>${escapeMarkup(title)}</title>`,
    '<rect width="100%" height="100%" fill="#fff"/>',
    label(left, 26, title, 'font-size="15" font-weight="bold"'),
    ...grid,
    ...numbers,
    label(left + width / 2, top + height + 40, "decoder layer", 'text-anchor="middle"'),
    ...curves,
    "</svg>",
  ].join("\n")}\n`;
}
