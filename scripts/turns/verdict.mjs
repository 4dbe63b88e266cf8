// Evaluates the marks: a loop is covered if it ran a second iteration in every .cu file in which it ran a first one.

const isHeader = ({ file }) => /\.(cuh|h)$/.test(file);

/** For each site, the units in which its first byte is set, and those in which its second byte is set. */
export function tally(sites, marks) {
  const seen = sites.map(() => [new Set(), new Set()]);
  for (const units of marks) {
    for (const [unit, bytes] of Object.entries(units)) {
      for (let i = 0; i < bytes.length; i++) if (bytes.charCodeAt(i)) seen[i >> 1][i & 1].add(unit);
    }
  }
  return seen;
}

/**
 * The units in which a site has its first mark but not its second. For code in headers, each unit counts separately.
 */
function lacking(site, [first, second]) {
  if (second.size === 0) return isHeader(site) && first.size > 0 ? [...first] : [""];
  return isHeader(site) ? [...first].filter((unit) => unit !== "host" && !second.has(unit)) : [];
}

/**
 * Loops and branches without full coverage, compared with the table of exceptions { file, text, unit?, reason }.
 *
 * @typedef {import("./instrument.mjs").Site & { file: string }} Placed
 * @returns {{ loops: number, missing: (Placed & { units: string })[], branches: (Placed & { way: string })[], stale:
 * object[] }}
 */
export function verdict(sites, seen, exceptions) {
  const used = new Set();
  const excepted = ({ file, text }, unit) => {
    const matching = exceptions.filter((each) => each.file === file && each.text === text);
    const fitting = matching.filter((each) => !each.unit || each.unit === unit);
    for (const each of fitting) used.add(each);
    return fitting.length > 0;
  };
  const missing = [];
  const branches = [];
  for (const [i, site] of sites.entries()) {
    if (site.kind === "branch") {
      const [no, yes] = seen[i];
      if (!no.size || !yes.size)
        branches.push({ ...site, way: yes.size ? "always true" : no.size ? "always false" : "never asked" });
      continue;
    }
    const units = lacking(site, seen[i]).filter((unit) => !excepted(site, unit));
    if (units.length > 0) missing.push({ ...site, units: units.join(", ") });
  }
  const loops = sites.filter(({ kind }) => kind === "loop").length;
  return { loops, missing, branches, stale: exceptions.filter((each) => !used.has(each)) };
}
