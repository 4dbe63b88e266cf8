/** The playground as `npm run playground` builds it, in a separate folder, and pages that show it. */
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import type { Browser, Page } from "playwright-core";
import { build } from "vite";

const CONFIG = fileURLToPath(new URL("../../../playground/vite.config.ts", import.meta.url));

/** A built playground. */
export interface Built {
  /** The address of the file on disk. */
  readonly file: string;
  readonly bytes: Buffer;
  remove(): void;
}

/** Builds the playground from the package of this checkout. */
export async function buildPlayground(): Promise<Built> {
  const folder = mkdtempSync(join(tmpdir(), "lockstep-playground-"));
  await build({ configFile: CONFIG, logLevel: "error", build: { outDir: folder } });
  const path = join(folder, "index.html");
  return {
    file: pathToFileURL(path).href,
    bytes: readFileSync(path),
    remove: () => rmSync(folder, { recursive: true }),
  };
}

/** A page, its requests, and its errors. */
export interface Shown {
  readonly page: Page;
  readonly requests: readonly string[];
  readonly faults: readonly string[];
  /** Lets the next test use the tab, in which it loads the playground again. */
  close(): Promise<void>;
}

/** How a page is shown. */
export interface Look {
  readonly width?: number;
  readonly scheme?: "light" | "dark";
}

const HEIGHT = 900;

/** Tabs that no test uses. A load in one of them takes a third of the time of a load in a new tab. */
const idle: Page[] = [];

/** Opens an address of the playground and waits until it has been drawn. */
export async function show(
  browser: Browser,
  address: string,
  { width = 1280, scheme = "light" }: Look = {},
): Promise<Shown> {
  const page = idle.pop() ?? (await browser.newPage());
  await page.setViewportSize({ width, height: HEIGHT });
  await page.emulateMedia({ colorScheme: scheme });
  const requests: string[] = [];
  const faults: string[] = [];
  page.on("request", (request) => requests.push(request.url()));
  page.on("pageerror", (error) => faults.push(error.message));
  page.on("console", (message) => message.type() === "error" && faults.push(message.text()));
  await page.goto(address);
  await page.waitForSelector("main h2");
  const close = async (): Promise<void> => {
    page.removeAllListeners();
    await page.goto("about:blank");
    idle.push(page);
  };
  return { page, requests, faults, close };
}

/** Serves one file under a path, without any header that isolates the page. */
export async function serveUnder(
  path: string,
  bytes: Buffer,
): Promise<{ readonly url: string; close(): void }> {
  const server = createServer((request, response) => {
    const isFile = new URL(request.url ?? "/", "http://localhost").pathname === path;
    response.writeHead(isFile ? 200 : 404, { "content-type": "text/html" }).end(isFile ? bytes : "");
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  return { url: `http://127.0.0.1:${port}${path}`, close: () => server.close() };
}
