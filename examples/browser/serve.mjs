// Serves this checkout with the headers that allow a page to share memory between threads, and prints the address to
// open.
// Usage: npm run build && node examples/browser/serve.mjs [port]
import { createReadStream } from "node:fs";
import { stat } from "node:fs/promises";
import { createServer } from "node:http";
import { extname, join, normalize } from "node:path";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("../..", import.meta.url));
const TYPES = { ".html": "text/html", ".js": "text/javascript", ".map": "application/json" };

const server = createServer(async (request, response) => {
  const { pathname } = new URL(request.url, "http://localhost");
  const path = join(root, normalize(pathname === "/" ? "/examples/browser/index.html" : pathname));
  const exists = path.startsWith(root) && (await stat(path).catch(() => undefined))?.isFile();
  response.writeHead(exists ? 200 : 404, {
    "content-type": TYPES[extname(path)] ?? "application/octet-stream",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-embedder-policy": "require-corp",
  });
  if (exists) createReadStream(path).pipe(response);
  else response.end();
});
server.listen(Number(process.argv[2] ?? 8080), "127.0.0.1", () => {
  process.stdout.write(`http://127.0.0.1:${server.address().port}/\n`);
});
