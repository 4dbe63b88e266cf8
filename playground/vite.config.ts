import { createHash } from "node:crypto";
import { fileURLToPath } from "node:url";
import { defineConfig, type Plugin } from "vite";
import { viteSingleFile } from "vite-plugin-singlefile";

/**
 * Writes a content security policy into the page, in place of a comment. It permits the built script and style, and compiling
 * WebAssembly; it forbids loading and sending anything.
 */
function contentSecurityPolicy(): Plugin {
  const hashes = (html: string, tag: string): string =>
    Array.from(html.matchAll(new RegExp(`<${tag}[^>]*>([^]*?)</${tag}>`, "g")), ([, text = ""]) => {
      return `'sha256-${createHash("sha256").update(text).digest("base64")}'`;
    }).join(" ");
  return {
    name: "content-security-policy",
    enforce: "post",
    generateBundle: {
      order: "post",
      handler(_options, bundle) {
        for (const file of Object.values(bundle)) {
          if (file.type !== "asset" || !file.fileName.endsWith(".html")) continue;
          const html = String(file.source);
          const policy = [
            "default-src 'none'",
            `script-src ${hashes(html, "script")} 'wasm-unsafe-eval'`,
            `style-src ${hashes(html, "style")}`,
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
          ].join("; ");
          const meta = `<meta http-equiv="Content-Security-Policy" content="${policy}" />`;
          if (!html.includes(POLICY)) throw new Error(`the page has no ${POLICY}`);
          file.source = html.replace(POLICY, () => meta);
        }
      },
    },
  };
}

/** The comment in index.html that the policy replaces. */
const POLICY = "<!-- content security policy -->";

/** Builds one HTML file that contains everything and opens from any host or from a disk. */
export default defineConfig({
  root: fileURLToPath(new URL(".", import.meta.url)),
  base: "./",
  plugins: [viteSingleFile(), contentSecurityPolicy()],
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  build: { target: "es2022", outDir: "../out/playground", emptyOutDir: true },
});
