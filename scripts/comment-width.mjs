// Lists comments wider than 130 columns; exits with 1 if there are any. (Formatters wrap code, but not comments.)
//   node scripts/comment-width.mjs
import { execFileSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";

const WIDTH = 130;
const SOURCES = ["ts", "tsx", "mjs", "h", "cc", "cu", "cuh"].map((extension) => `*.${extension}`);

const files = execFileSync("git", ["ls-files", "-co", "--exclude-standard", "--", ...SOURCES], {
  encoding: "utf8",
  maxBuffer: 1 << 26,
});
const wide = files
  .split("\n")
  .filter((file) => file !== "" && !file.includes(".gen.") && existsSync(file))
  .flatMap((file) =>
    readFileSync(file, "utf8")
      .split("\n")
      .flatMap((line, i) =>
        line.length > WIDTH && hasComment(line) ? [`${file}:${i + 1}: ${line.length} columns`] : [],
      ),
  );
for (const place of wide) console.error(`${place}; a comment has at most ${WIDTH}: break it`);
if (wide.length > 0) process.exitCode = 1;

/** Whether a line contains a comment. Comment characters inside of strings do not count. */
function hasComment(line) {
  const code = line.replaceAll(/"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|`(?:[^`\\]|\\.)*`/g, '""');
  return /^\s*(?:\/\/|\/?\*)|\s(?:\/\/|\/\*)/.test(code);
}
