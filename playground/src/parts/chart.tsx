/** A chart of examples/shared/charts, which is redrawn when its width changes. */
import { useEffect, useRef, useState } from "preact/hooks";

/** Draws with the current width. `draw` is called again when one of `inputs` changes. */
export function Chart({
  draw,
  inputs,
  label,
}: {
  readonly draw: (width: number) => Element;
  readonly inputs: readonly unknown[];
  readonly label: string;
}) {
  const place = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const watched = new ResizeObserver(([entry]) => setWidth(Math.floor(entry?.contentRect.width ?? 0)));
    if (place.current) watched.observe(place.current);
    return () => watched.disconnect();
  }, []);
  useEffect(() => {
    if (width === 0) return;
    const drawn = draw(width);
    // the page's style has the same rules, and its content security policy forbids inline ones
    for (const style of drawn.querySelectorAll("style")) style.remove();
    // the chart's aria-label describes it
    drawn.setAttribute("aria-hidden", "true");
    place.current?.replaceChildren(drawn);
  }, [width, ...inputs]);
  return <div class="chart" ref={place} role="img" aria-label={label} />;
}
