/**
 * A server for one page. It serves the built files of the checkout and the list of functions to call, and receives the
 * results.
 */
import { createReadStream } from "node:fs";
import { stat } from "node:fs/promises";
import { createServer, type OutgoingHttpHeaders } from "node:http";
import type { AddressInfo } from "node:net";
import { extname, join, normalize } from "node:path";
import { text } from "node:stream/consumers";

const ROOT = new URL("../../..", import.meta.url).pathname;
const SCRIPTS = [".js", ".mjs"];

/** A function of cases.mjs and its arguments. */
export interface Call {
  readonly name: string;
  readonly args: readonly unknown[];
}

export interface PageServer {
  readonly url: string;
  /** The results that the page sends. */
  readonly result: Promise<unknown>;
  close(): Promise<void>;
}

/** Serves `html` at / and every script of the checkout at its path, with these headers. */
export async function servePage(
  html: string,
  calls: readonly Call[],
  headers: OutgoingHttpHeaders,
): Promise<PageServer> {
  let report: (result: unknown) => void;
  const result = new Promise<unknown>((resolve) => {
    report = resolve;
  });
  const server = createServer(async (request, response) => {
    const { pathname } = new URL(request.url ?? "/", "http://localhost");
    const path = join(ROOT, normalize(pathname));
    const send = (type: string, body = "") =>
      response.writeHead(200, { ...headers, "content-type": type }).end(body);
    if (pathname === "/") send("text/html", html);
    else if (pathname === "/calls") send("application/json", JSON.stringify(calls));
    else if (pathname === "/result") {
      report(JSON.parse(await text(request)));
      send("text/plain");
    } else if (SCRIPTS.includes(extname(path)) && (await stat(path).catch(() => undefined))?.isFile()) {
      createReadStream(path).pipe(response.writeHead(200, { ...headers, "content-type": "text/javascript" }));
    } else response.writeHead(404).end();
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  const close = () =>
    new Promise<void>((resolve) => {
      server.close(() => resolve());
      server.closeAllConnections();
    });
  return { url: `http://127.0.0.1:${port}/`, result, close };
}
