/** Codes element by element, of one tensor or of both dialects, around the selected element. */
import { useLayoutEffect, useRef } from "preact/hooks";
import type { Place } from "../parts/heat-map.js";
import { type Codes, type Difference, differenceAt, type Pair } from "../reference/index.js";
import { codeText } from "../words.js";

const SHOWN = { rows: 16, columns: 8 };

const MEANINGS: Readonly<Record<Difference, string>> = {
  none: "equal",
  code: "another code, the same value",
  value: "another value",
};

const MOVES: Readonly<Record<string, readonly [rows: number, columns: number]>> = {
  ArrowUp: [-1, 0],
  ArrowDown: [1, 0],
  ArrowLeft: [0, -1],
  ArrowRight: [0, 1],
  PageUp: [-SHOWN.rows, 0],
  PageDown: [SHOWN.rows, 0],
};

/** The first index of the window of `size` elements that contains an index. */
function windowStart(at: number, size: number, count: number): number {
  return Math.max(0, Math.min(Math.floor(at / size) * size, count - size));
}

/** The codes of both dialects, with the elements that differ marked. */
export function CellPanel({
  pair,
  at,
  onSelect,
}: {
  readonly pair: Pair;
  readonly at: Place;
  readonly onSelect: (to: Place) => void;
}) {
  const { a, b, different } = pair;
  const index = at.row * a.columns + at.column;
  const jump = (to: number | undefined) => {
    if (to !== undefined) onSelect({ row: Math.floor(to / a.columns), column: to % a.columns });
  };
  const next = different.find((each) => each > index);
  const previous = different.findLast((each) => each < index);
  return (
    <section class="panel" aria-labelledby="cells-title">
      <div class="head">
        <h2 id="cells-title">Codes</h2>
        <p class="soft">
          <span class="name-a">A</span> above <span class="name-b">B</span>;{" "}
          <mark class="value">another value</mark>, <mark class="code">another code alone</mark>
        </p>
        <span class="buttons">
          <button type="button" class="chip" disabled={previous === undefined} onClick={() => jump(previous)}>
            ← previous difference
          </button>
          <button type="button" class="chip" disabled={next === undefined} onClick={() => jump(next)}>
            next difference →
          </button>
        </span>
      </div>
      <CellGrid
        sides={[a, b]}
        difference={(cell) => differenceAt(a, b, cell)}
        caption="Codes of both dialects; arrow keys move"
        at={at}
        onSelect={onSelect}
      />
    </section>
  );
}

/** Codes of the elements around one of them. The arrow keys move the selection. */
export function CellGrid({
  sides,
  difference,
  caption,
  at,
  onSelect,
}: {
  readonly sides: readonly Codes[];
  readonly difference?: (cell: number) => Difference;
  readonly caption: string;
  readonly at: Place;
  readonly onSelect: (to: Place) => void;
}) {
  const { rows, columns } = sides[0] as Codes;
  const table = useRef<HTMLTableElement>(null);
  const hasMoved = useRef(false);
  // before the next key arrives, because the cell that had the focus may have been removed
  useLayoutEffect(() => {
    if (hasMoved.current) table.current?.querySelector<HTMLElement>('[tabindex="0"]')?.focus();
    hasMoved.current = false;
  }, [at.row, at.column]);
  const move = (event: KeyboardEvent) => {
    const by = MOVES[event.key];
    if (!by) return;
    event.preventDefault();
    hasMoved.current = true;
    const within = (value: number, count: number) => Math.min(count - 1, Math.max(0, value));
    onSelect({ row: within(at.row + by[0], rows), column: within(at.column + by[1], columns) });
  };
  const top = windowStart(at.row, SHOWN.rows, rows);
  const left = windowStart(at.column, SHOWN.columns, columns);
  const shownRows = Array.from({ length: Math.min(SHOWN.rows, rows) }, (_, i) => top + i);
  const shownColumns = Array.from({ length: Math.min(SHOWN.columns, columns) }, (_, i) => left + i);
  return (
    <table class="cells" ref={table}>
      <caption class="hidden">{caption}</caption>
      <thead>
        <tr>
          <td />
          {shownColumns.map((column) => (
            <th scope="col" key={column}>
              {column}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>
        {shownRows.map((row) => (
          <tr key={row}>
            <th scope="row">{row}</th>
            {shownColumns.map((column) => (
              <td key={column}>
                <Cell
                  sides={sides}
                  difference={difference?.(row * columns + column)}
                  cell={row * columns + column}
                  isHere={row === at.row && column === at.column}
                  onChoose={() => onSelect({ row, column })}
                  onKey={move}
                />
              </td>
            ))}
          </tr>
        ))}
      </tbody>
    </table>
  );
}

/** A cell. The Tab key reaches only the selected one. */
function Cell({
  sides,
  difference,
  cell,
  isHere,
  onChoose,
  onKey,
}: {
  readonly sides: readonly Codes[];
  readonly difference: Difference | undefined;
  readonly cell: number;
  readonly isHere: boolean;
  readonly onChoose: () => void;
  readonly onKey: (event: KeyboardEvent) => void;
}) {
  const [first = "", second] = sides.map(({ codes, format }) =>
    codeText(codes[cell] as number, format).slice(2),
  );
  return (
    <button
      type="button"
      class={difference ?? "none"}
      aria-pressed={isHere}
      tabIndex={isHere ? 0 : -1}
      onClick={onChoose}
      onKeyDown={onKey}
    >
      {second === undefined ? null : <span class="hidden">A </span>}
      <code>{first}</code>
      {second === undefined ? null : (
        <>
          <span class="hidden">, B </span>
          <code>{second}</code>
          <span class="hidden">, {MEANINGS[difference ?? "none"]}</span>
        </>
      )}
    </button>
  );
}
